"""TextEnvironment: what `reset` and `step` may return, and responses that are verified by playing them again."""

import json
from typing import Any

import pytest
from gymq.workers.agents.gymnasium_agent.example_environment import Guess

import gymq
from gymq.execution.loading.contract import InvalidWorker, check_contract
from gymq.testing import Harness, prompt, reply

ROW = {**prompt("Reply with a number only."), "number": 42, "highest": 100}
FIRST = "I think of a number from 1 to 100. Guess it; you have 10 guesses."


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


class Echo(gymq.TextEnvironment[gymq.Row]):
    """Its step returns what the test says."""

    result: Any = None

    def reset(self, row: gymq.Row) -> str:
        return "Say something."

    def step(self, action: str) -> gymq.StepResult:
        result: gymq.StepResult = self.result
        return result


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, r"step must return \(observation, reward, terminated, truncated, info\), not None"),
        (("", 0.0, False, {}), "step must return"),
        ((None, 0.0, False, False, {}), r"the observation of a step must be a text \(str\).*not NoneType"),
        (("", float("nan"), False, False, {}), "must be a finite number, not nan"),
        (("", "1", False, False, {}), "a reward must be a number, not '1'"),
        (("", 0.0, False, False, None), "the info of a step must be a dict"),
    ],
)
async def test_a_step_that_returns_something_else_is_a_failure_and_no_reward(result: Any, problem: str) -> None:
    async with Harness(Echo) as env:
        env.author.result = result
        session = await env.session(ROW)
        with pytest.raises(gymq.RolloutError, match=problem):
            await session.call("step", {"action": "a"})


async def test_a_first_observation_that_is_no_text_is_refused() -> None:
    class Silent(Echo):
        def reset(self, row: gymq.Row) -> Any:
            return ("Say something.", {})

    async with Harness(Silent) as env:
        with pytest.raises(gymq.RolloutError, match=r"reset must return a text \(str\).*not tuple"):
            await env.session(ROW)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, r"has no `reset\(self, row\)`"),
        ({"reset": lambda self, row: ""}, r"has no `step\(self, action\)`"),
        ({"reset": lambda self: "", "step": Echo.step}, r"reset must take \(self, row\), but it takes \(self\)"),
    ],
)
def test_a_class_that_cannot_be_played_is_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidWorker, match=problem):
        check_contract(type("Env", (gymq.TextEnvironment,), body))


async def test_no_step_pays_after_the_end() -> None:
    async with Harness(Guess) as env:
        session = await env.session(ROW)
        await session.call("step", {"action": "42"})
        again = await session.call("step", {"action": "42"})
        assert (again.status, json.loads(again.output)) == (400, {"error": "the episode is over"})
        assert (await session.verify(ROW, reply())).reward == 1.0


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True)])
async def test_an_episode_that_was_cut_off_is_over_too(terminated: bool, truncated: bool) -> None:
    async with Harness(Echo) as env:
        env.author.result = "Bye.", 1.0, terminated, truncated, {}
        session = await env.session(ROW)
        await session.call("step", {"action": "a"})
        assert (await session.call("step", {"action": "b"})).status == 400
        verdict = await session.verify(ROW, reply())
    assert (verdict.reward, verdict.fields["truncated"]) == (1.0, truncated)


async def test_an_episode_that_was_not_played_to_its_end_counts_as_cut_off() -> None:
    async with Harness(Guess) as env:
        verdict = await env.verify(ROW, reply(user(FIRST), "50", user("It is lower.")))
    assert (verdict.fields["terminated"], verdict.fields["truncated"]) == (False, True)


async def test_rollouts_of_a_row_draw_the_same_numbers() -> None:
    class Dice(Echo):
        def reset(self, row: gymq.Row) -> str:
            return str(self.random.random())

    environment = Dice({})
    rows = [{**ROW, "_ng_rollout_index": 0}, {**ROW, "_ng_rollout_index": 1}, {**ROW, "number": 43}]
    first, same, other = [(await environment.open(environment.parse_row(row))).observation for row in rows]
    assert first == same != other


async def test_a_stored_response_is_verified_by_playing_it_again() -> None:
    played = reply(user(FIRST), "50", user("It is lower."), "42", user("Right."))
    async with Harness(Guess) as env:
        verdict = await env.verify(ROW, played)
    assert (verdict.reward, verdict.fields["num_steps"]) == (1.0, 2)


@pytest.mark.parametrize(
    "response",
    [
        reply("42"),
        reply(user("Guess."), "42", user("Right.")),
        reply(user(FIRST), "41", user("Right.")),
        reply(user(FIRST), "42", user("Right."), "42", user("Right.")),
    ],
    ids=["without-observations", "another-beginning", "another-answer", "after-the-end"],
)
async def test_a_response_that_is_no_conversation_with_it_has_no_reward(response: dict[str, Any]) -> None:
    async with Harness(Guess) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(ROW, response)


async def test_a_verification_that_failed_on_the_way_plays_from_the_beginning_again() -> None:
    class Away(gymq.TextEnvironment[gymq.Row]):
        steps = 0

        def reset(self, row: gymq.Row) -> str:
            return "Say something."

        def step(self, action: str) -> gymq.StepResult:
            Away.steps += 1
            if Away.steps == 2:
                raise gymq.ComponentFailed("away")
            return action, float(action), action == "3", False, {}

    played = reply(user("Say something."), "1", user("1"), "2", user("2"), "3", user("3"))
    async with Harness(Away) as env:
        session = await env.session(ROW)
        with pytest.raises(gymq.ComponentFailed):
            await session.verify(ROW, played)
        for _ in range(2):
            verdict = await session.verify(ROW, played)
            assert (verdict.reward, verdict.fields["num_steps"]) == (6.0, 3)


async def test_start_is_shared_and_an_episode_is_not() -> None:
    class Words(gymq.TextEnvironment[gymq.Row]):
        async def start(self) -> None:
            self.words = ["shared"]

        async def reset(self, row: gymq.Row) -> str:
            self.said: list[str] = []
            return self.words[0]

        async def step(self, action: str) -> gymq.StepResult:
            self.said.append(action)
            return " ".join(self.said), 0, False, False, {}

    async with Harness(Words) as env:
        first, second = await env.session(ROW), await env.session(ROW)
        await first.call("step", {"action": "a"})
        assert json.loads((await first.call("step", {"action": "b"})).output)["observation"] == "a b"
        assert json.loads((await second.call("step", {"action": "c"})).output)["observation"] == "c"
        assert not hasattr(env.author, "said")
