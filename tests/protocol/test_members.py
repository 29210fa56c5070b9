"""Fields that authors make up: named in an error if a message or a file cannot hold them."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import gymq
from gymq.protocol.codec import Decoder, check_encodable, encode
from gymq.protocol.messages import BadMessage, Verified
from gymq.protocol.tokens import encode_json
from gymq.testing import Harness, prompt, reply

HALF_A_PAIR = "half a surrogate pair"
MISFITS = {
    "an integer above 64 bits": (2**64, "$.m"),
    "an integer below 64 bits": (-(2**63) - 1, "$.m"),
    "one of them in a list": ([1, {"a": [10**30]}], "$.m[1].a[0]"),
    HALF_A_PAIR: ({"a": "\ud800"}, "$.m.a"),
    "an object": (object(), "$.m"),
    "a count of None": (Counter([None]), "$.m"),
    "a key that is a pair": ([{(1, 2): 3}], "$.m[0]"),
}
FITTING: list[Any] = [2**64 - 1, -(2**63), {1: 2}, {"a": None}, {1.5}, datetime(2026, 1, 2, tzinfo=UTC), float("nan")]


@pytest.mark.parametrize(("member", "path"), MISFITS.values(), ids=MISFITS)
def test_a_field_that_does_not_fit_is_told_with_its_path(member: Any, path: str) -> None:
    with pytest.raises(BadMessage) as raised:
        check_encodable({"fits": 1, "m": member}, "$")
    assert str(raised.value).endswith(f"at `{path}`")


@pytest.mark.parametrize("member", FITTING, ids=repr)
def test_a_field_that_fits_reaches_the_file(member: Any) -> None:
    check_encodable({"m": member}, "$")
    received = Decoder(Verified)(encode(Verified(reward=1.0, verdict={"m": member})))
    assert msgspec.json.encode(received.verdict, enc_hook=encode_json)


class Talkative(gymq.Resources[gymq.Row]):
    """Says what the row says."""

    says: Any = None

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0, m=self.says)


UNMENDED = {name: case for name, case in MISFITS.items() if name != HALF_A_PAIR}


async def test_half_a_surrogate_pair_in_a_verdict_becomes_a_question_mark() -> None:
    async with Harness(Talkative) as env:
        env.author.says = MISFITS[HALF_A_PAIR][0]
        verdict = await env.verify(prompt("?"), reply("x"))
    assert "?" in str(verdict.fields["m"])


@pytest.mark.parametrize(("member", "path"), UNMENDED.values(), ids=UNMENDED)
async def test_the_tests_of_an_author_find_it(member: Any, path: str) -> None:
    async with Harness(Talkative) as env:
        env.author.says = member
        with pytest.raises(gymq.RolloutError, match=r"Talkative returned a verdict with a field") as raised:
            await env.verify(prompt("?"), reply("x"))
    assert raised.value.failure_class is gymq.FailureClass.VERIFIER_FAILED
    assert path.replace("$", "$.verdict") in raised.value.message
