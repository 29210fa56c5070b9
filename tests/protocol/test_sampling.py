"""What a reply was sampled with."""

from typing import Any

import pytest

from gymq.protocol.sampling import LOG_PROBS, PROCESSED, RAW, mismatch, recorded


def test_the_temperature_and_what_is_not_neutral_is_recorded() -> None:
    settings = {"temperature": 1.0, "top_p": 1.0, "top_k": 5, "seed": None, "max_tokens": 9, "user": "me"}
    assert recorded(settings, RAW) == {"temperature": 1.0, "top_k": 5, "max_tokens": 9, LOG_PROBS: RAW}


@pytest.mark.parametrize(("log_probs", "ignored"), [(RAW, "temperature 0.5"), (PROCESSED, None), (None, None)])
def test_raw_log_probs_do_not_reflect_the_settings(log_probs: str | None, ignored: str | None) -> None:
    sampling: dict[str, Any] = recorded({"temperature": 0.5, "top_p": 1.0}, log_probs)
    assert mismatch(sampling) == ignored
