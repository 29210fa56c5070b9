"""What `verify` may return: a verdict, or a number that is the reward."""

import numpy as np
import pytest

import gymq
from gymq.testing import Harness, prompt, reply


class Given(gymq.Resources[gymq.Row]):
    """Returns what the test sets."""

    reward: object = None

    async def verify(self, request):
        return self.reward


class Shorter(gymq.Resources[gymq.Row]):
    """A `verify_in_process`, which runs in a process of its own."""

    def verify_in_process(self, request: gymq.VerifyRequest[gymq.Row]) -> bool:
        return len(request.reply_text) < 4


@pytest.mark.parametrize(
    ("returned", "reward"),
    [(0.25, 0.25), (1, 1.0), (True, 1.0), (False, 0.0), (np.float32(0.5), 0.5), (np.float64(0.5), 0.5)],
)
async def test_a_number_is_the_reward(returned, reward):
    async with Harness(Given) as env:
        env.author.reward = returned
        verdict = await env.verify(prompt("?"), reply("!"))
    assert (verdict.reward, verdict.fields) == (reward, {})


@pytest.mark.parametrize(
    "returned", [None, "1.0", b"1", {"reward": 1.0}, [1.0], float("nan"), float("inf"), 10**400, np.zeros(2)]
)
async def test_anything_else_is_a_failure_and_no_reward(returned):
    async with Harness(Given) as env:
        env.author.reward = returned
        with pytest.raises(gymq.RolloutError) as failed:
            await env.verify(prompt("?"), reply("!"))
    assert failed.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_the_failure_says_what_to_return():
    async with Harness(Given) as env:
        with pytest.raises(gymq.RolloutError, match=r"returned NoneType, .* return gymq\.Verdict"):
            await env.verify(prompt("?"), reply("!"))


async def test_a_plain_verifier_may_return_a_bool():
    async with Harness(Shorter) as env:
        assert (await env.verify(prompt("?"), reply("yes"))).reward == 1.0
        assert (await env.verify(prompt("?"), reply("never"))).reward == 0.0


def test_a_verdict_is_shown_as_it_is_written():
    assert repr(gymq.Verdict(1)) == "Verdict(reward=1.0)"
    assert repr(gymq.Verdict(0.5, answer="Bern")) == "Verdict(reward=0.5, answer='Bern')"
