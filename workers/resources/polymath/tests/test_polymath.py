"""What the rows have beyond those of math_with_judge, and that the verifier is the same."""

from typing import Any

import pytest
from gymq.workers.resources.math_with_judge.verifier import MathOptions, MathVerifier
from gymq.workers.resources.polymath.worker import Polymath, PolymathRow

import gymq
from gymq.testing import Harness, prompt, reply


def row(**members: Any) -> dict[str, Any]:
    return {**prompt("Quante corde?"), "question": "Quante corde?", "expected_answer": "12", **members}


def test_its_options_and_its_verifier_are_those_of_math_with_judge():
    assert issubclass(Polymath, MathVerifier)
    assert Polymath.Options is MathOptions
    assert Polymath.row_type is PolymathRow


@pytest.mark.parametrize(
    ("given", "taken"), [({"weight": "-2"}, -2.0), ({"weight": None}, None), ({}, None), ({"weight": 8}, 8.0)]
)
def test_a_weight_is_a_number_or_nothing(given, taken):
    assert Polymath().parse_row(row(**given)).weight == taken


@pytest.mark.parametrize("member", [{"weight": "high"}, {"weight": "nan"}, {"language": 1}, {"expected_answer": 12}])
def test_a_row_that_does_not_fit_is_refused(member):
    with pytest.raises(gymq.InvalidTask):
        Polymath().parse_row(row(**member))


async def test_the_verdict_repeats_weight_and_language():
    pytest.importorskip("math_verify", reason='needs pip install "gymq[resources]"')
    async with Harness(Polymath) as env:
        verdict = await env.verify(row(weight=2, language="it"), reply("Sono \\boxed{12}"))
    assert (verdict.reward, verdict.fields["weight"], verdict.fields["language"]) == (1.0, 2.0, "it")
