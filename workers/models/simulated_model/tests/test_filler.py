"""Filler text and the toy tokeniser agree about ids."""

from __future__ import annotations

import pytest
from gymq.workers.models.simulated_model.filler import VOCABULARY_SIZE, Filler, tokens


@pytest.mark.parametrize("count", [0, 1, 7, 40_000, 100_000])
@pytest.mark.parametrize("uniform", [0.0001, 0.5, 0.9999])
def test_a_cut_has_the_wanted_length_and_the_ids_of_its_text(count: int, uniform: float) -> None:
    text, made_of = Filler().cut(uniform, count)
    assert len(made_of.ids) == len(made_of.log_probs) == count
    assert tokens(text.encode()) == made_of.ids


def test_ids_stay_inside_the_vocabulary() -> None:
    assert all(0 <= token < VOCABULARY_SIZE for token in tokens("Grüße, 世界! \N{ROCKET}".encode()))


def test_equal_texts_have_equal_ids_and_others_have_others() -> None:
    assert tokens(b"one text") == tokens(b"one text")
    assert tokens(b"one text") != tokens(b"two text")
