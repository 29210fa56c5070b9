"""gymnasium_agent: messages are actions, observations are user messages, and episodes survive their workers."""

import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.agents.gymnasium_agent import worker as gymnasium_agent
from gymq.workers.agents.gymnasium_agent.example_environment import Guess
from gymq.workers.agents.gymnasium_agent.worker import GymnasiumAgent

import gymq
from gymq.protocol.instances import Instance
from gymq.protocol.messages import FailureClass
from gymq.testing import prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support import episodes

FOLDER = Path(gymnasium_agent.__file__).parent
ROW = {**prompt("Reply with a number only."), "number": 42, "highest": 100}


class Dice(gymq.TextEnvironment[gymq.Row]):
    """Guess what the next throw shows; ten throws."""

    def reset(self, row: gymq.Row) -> str:
        self.thrown: list[int] = []
        return "Guess."

    def step(self, action: str) -> gymq.StepResult:
        self.thrown.append(self.random.randint(1, 6))
        return f"It was {self.thrown[-1]}.", 0.1, len(self.thrown) == 10, False, {"thrown": self.thrown}


def plays(*texts: str) -> Any:
    answers = iter(texts)
    return lambda params: reply(next(answers))


async def test_messages_are_actions_and_observations_are_user_messages() -> None:
    async with AgentHarness(GymnasiumAgent, Guess, plays("50", "x", "25", "42")) as harness:
        verdict, response = await harness.run(ROW)
    said = [item["content"] for item in response["output"] if item["role"] == "user"]
    assert said[1:] == ["It is lower.", "Reply with a number.", "It is higher.", "Right."]
    assert (verdict.reward, verdict.fields) == (
        1.0,
        {"num_steps": 3, "terminated": True, "truncated": False, "info": {"left": 7}},
    )


async def test_the_agents_limit_truncates_an_episode() -> None:
    async with AgentHarness(GymnasiumAgent, Guess, lambda params: reply("1"), {"max_steps": 2}) as harness:
        verdict, _ = await harness.run(ROW)
    assert (verdict.reward, verdict.fields["num_steps"], verdict.fields["truncated"]) == (0.0, 2, True)


async def test_a_reply_that_was_cut_short_is_no_action() -> None:
    cut = reply("4") | {"incomplete_details": {"reason": "max_output_tokens"}}
    async with AgentHarness(GymnasiumAgent, Guess, lambda params: cut) as harness:
        verdict, response = await harness.run(ROW)
    assert (verdict.reward, verdict.fields["num_steps"]) == (0.0, 0)
    assert response["output"][-1]["role"] == "assistant"


async def test_a_failing_step_is_a_failure_that_names_its_line() -> None:
    class Broken(Guess):
        def step(self, action: str) -> gymq.StepResult:
            raise KeyError(action)

    async with AgentHarness(GymnasiumAgent, Broken, plays("1")) as harness:
        with pytest.raises(
            gymq.RolloutError, match=r"Broken failed to step: KeyError: '1'\n.*raise KeyError"
        ) as raised:
            await harness.run(ROW)
    assert raised.value.failure_class is FailureClass.VERIFIER_FAILED


async def test_an_environment_without_turns_is_refused() -> None:
    class Plain(gymq.Resources):
        async def verify(self, request: gymq.VerifyRequest) -> gymq.Verdict:
            return gymq.Verdict(1.0)

    async with AgentHarness(GymnasiumAgent, Plain, plays("1")) as harness:
        with pytest.raises(gymq.RolloutError, match="not one that gymnasium_agent can play"):
            await harness.run(ROW)


async def test_episodes_are_rebuilt_when_their_workers_are_killed(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]
    guess = Instance("guess", "resources", str(FOLDER / "example_environment.py"), {"num_workers": 2})
    outcomes = await episodes.played(tmp_path, guess, rows, skill=1.0, kill=True)
    assert {outcome.reward for outcome in outcomes} == {1.0}
    assert {outcome.attempt for outcome in outcomes} == {0}  # none started over


@pytest.mark.nightly
async def test_chance_is_the_same_again_in_another_worker(tmp_path: Path) -> None:
    dice = Instance("dice", "resources", f"{__name__}:Dice", {"num_workers": 2})
    rows = [episodes.row(["6"] * 10, number=number // 2) for number in range(6)]
    outcomes = await episodes.played(tmp_path, dice, rows, skill=1.0, kill=True)
    assert {(round(outcome.reward, 6), outcome.attempt) for outcome in outcomes} == {(1.0, 0)}
    thrown = [tuple(outcome.verdict["info"]["thrown"]) for outcome in outcomes]
    assert thrown[::2] == thrown[1::2]  # the same row
    assert len(set(thrown)) == 3  # another row
