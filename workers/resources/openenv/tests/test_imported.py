"""Environments of OpenEnv by their classes, and rows that offer their actions as tools.

`tests/hubs` does the same with classes of the package.
"""

import json
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pydantic
import pytest
from gymq.workers.agents.simple_agent.worker import SimpleAgent
from gymq.workers.resources.openenv.example_server import app
from gymq.workers.resources.openenv.tests.mocks import serving
from gymq.workers.resources.openenv.worker import OpenEnvironment

import gymq
from gymq.responses import FunctionCall
from gymq.testing import Harness, function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness


class Seen(pydantic.BaseModel):
    text: str
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = {}


class Count(pydantic.BaseModel):
    number: int


class CallTool(pydantic.BaseModel):
    tool_name: str
    arguments: dict[str, Any]


class Counter:
    """Reward 1 for the number that follows."""

    closed: ClassVar[list[int]] = []

    def reset(self, start: int = 0) -> Seen:
        self.number = start
        return Seen(text=f"Count on from {start}.")

    def step(self, action: Count) -> Seen:
        if action.number < 0:
            raise ValueError("a number below 0")
        if action.number == 999:
            time.sleep(1.0)
        right = action.number == self.number + 1
        self.number = action.number
        return Seen(text="right" if right else "wrong", reward=float(right), done=not right)

    def close(self) -> None:
        self.closed.append(self.number)


class Result(pydantic.BaseModel):
    tool_name: str
    result: Any = None
    error: str | None = None
    reward: float | None = None
    done: bool = False


class Tools(Counter):
    def step(self, action: CallTool) -> Result:  # type: ignore[override]
        if action.tool_name != "echo":
            return Result(tool_name=action.tool_name, error="no such tool")
        return Result(tool_name="echo", result=action.arguments["message"], reward=0.5)


COUNTER = {"env_class": f"{__name__}.Counter", "action_class": f"{__name__}.Count"}
TOOLS = {"env_class": f"{__name__}.Tools", "action_class": f"{__name__}.CallTool", "is_mcp": True}


def offering(*names: str, **fields: Any) -> dict[str, Any]:
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False} for name in names]
    return {**prompt("Play.", tools=tools), **fields}


def plays(*calls: FunctionCall) -> Callable[[dict[str, Any]], dict[str, Any]]:
    turns = iter(calls)
    return lambda params: reply(next(turns, "Done."))


async def played(options: dict[str, Any], row: dict[str, Any], *calls: FunctionCall) -> tuple[gymq.Verdict, list[Any]]:
    """The verdict, and what the model read."""
    async with AgentHarness(SimpleAgent, OpenEnvironment, plays(*calls), resources_options=options) as harness:
        verdict, response = await harness.run(row)
    outputs = [item["output"] for item in response["output"] if item["type"] == "function_call_output"]
    return verdict, [json.loads(output) if output.startswith("{") else output for output in outputs]


def step(number: int | str) -> FunctionCall:
    return function_call("step", {"number": number}, f"call_{number}")


async def test_an_environment_is_played_by_calls_of_its_step() -> None:
    verdict, read = await played(COUNTER, offering("step", reset={"start": 4}), step(5), step("x"), step(6), step(9))
    assert (verdict.reward, verdict.fields["num_steps"], verdict.fields["terminated"]) == (2.0, 3, True)
    assert read[0] == {"text": "right", "reward": 1.0, "done": False}
    assert "number" in read[1]["observation"]
    assert read[3] == {"text": "wrong", "reward": 0.0, "done": True}
    assert Counter.closed[-1] == 9
    verdict, read = await played({**COUNTER, "reset_kwargs": {"start": 7}}, offering("step"), step(8))
    assert (verdict.reward, verdict.fields["truncated"]) == (1.0, True)


async def test_a_response_without_a_call_is_an_episode_without_reward() -> None:
    verdict, _ = await played(COUNTER, offering("step"))
    assert (verdict.reward, verdict.fields["num_steps"]) == (0.0, 0)


async def test_the_tools_of_an_environment_with_mcp_are_called_by_their_names() -> None:
    calls = [function_call("echo", {"message": "a"}, "1"), function_call("shout", {}, "2")]
    verdict, read = await played(TOOLS, offering("echo", "shout"), *calls)
    assert verdict.reward == 0.5
    assert read == [{"result": "a", "error": None}, {"result": None, "error": "no such tool"}]


async def test_an_environment_on_a_server_is_played_by_calls_too() -> None:
    call = function_call("step", {"message": "42"})
    async with serving(app()) as url:
        verdict, read = await played({"base_url": url}, offering("step", reset={"number": 42}), call)
    assert (verdict.reward, read[0]["done"]) == (1.0, True)


@pytest.mark.parametrize(
    ("number", "options", "problem"),
    [
        (-1, {}, "failed to step: ValueError: a number below 0"),
        (999, {"message_timeout_s": 0.2}, r"did not answer step within 0\.2 s"),
    ],
)
async def test_a_step_that_fails_is_no_reward(number: int, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(gymq.ComponentFailed, match=problem):
        await played({**COUNTER, **options}, offering("step"), step(number))


async def test_a_row_for_another_environment_is_invalid() -> None:
    with pytest.raises(gymq.InvalidTask, match=r"offers echo, step; without `is_mcp` .* one tool, step"):
        await played(COUNTER, offering("step", "echo"))
    with pytest.raises(gymq.ComponentFailed, match=r"failed to reset: TypeError: .*'seed'"):
        await played(COUNTER, offering("step", reset={"seed": 1}))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("maze_env.server.Maze", r"env_class: maze_env.server.Maze cannot be imported: .*'maze_env'; .*isolated"),
        (f"{__name__}.Missing", "cannot be imported: AttributeError"),
        (f"{__name__}.COUNTER", "is not a class"),
        ("Maze", "cannot be imported"),
    ],
)
async def test_a_class_that_is_not_here_costs_a_sentence(path: str, problem: str) -> None:
    with pytest.raises(gymq.OptionsError, match=problem):
        async with Harness(OpenEnvironment, {**COUNTER, "env_class": path}):
            pass


def test_a_server_or_classes_are_needed() -> None:
    with pytest.raises(gymq.OptionsError, match="set `base_url`, a server, or `env_class` and `action_class`"):
        OpenEnvironment({"env_class": f"{__name__}.Counter"})
