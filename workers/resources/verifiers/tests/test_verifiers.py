"""A taskset of verifiers 0.4 with its own library: agents, tools, rewards, other environments, judges, errors."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.agents.answering_agent.worker import AnsweringAgent
from gymq.workers.resources.verifiers.worker import Environments

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, ScriptedModel, function_call, reply
from gymq.testing.agent_harness import AgentHarness


def has_tasksets() -> bool:
    found = importlib.util.find_spec("verifiers")
    return found is not None and bool(found.submodule_search_locations) and _has_v1(found.submodule_search_locations)


def _has_v1(places: Any) -> bool:
    return any((Path(place) / "v1").is_dir() for place in places)


needs_library = pytest.mark.skipif(not has_tasksets(), reason="needs verifiers 0.4: make test-in NAME=hubs")
EXAMPLE = "gymq.workers.resources.verifiers.example_taskset"
ROW = {"task": 0, "responses_create_params": {"input": []}}


def environment(**options: Any) -> type[Environments]:
    class Env(Environments):
        def __init__(self) -> None:
            super().__init__({"environment": EXAMPLE, **options}, name="env")

    return Env


async def rolled_out(answer: Any, **options: Any) -> tuple[gymq.Verdict, dict[str, Any]]:
    async with AgentHarness(AnsweringAgent, environment(**options), answer) as harness:
        return await harness.run(ROW)


def adds(params: dict[str, Any]) -> dict[str, Any]:
    last = params["input"][-1]
    if last.get("type") == "function_call_output":
        return reply(last["output"])
    return reply(function_call("adder_add", {"a": 3, "b": 4}, "c1"))


@needs_library
async def test_tools_and_rewards_are_those_of_the_taskset() -> None:
    verdict, response = await rolled_out(adds)
    assert (verdict.reward, verdict.fields["reward_components"]) == (1.0, {"is_right": 1.0})
    assert verdict.fields["metrics"] == {"num_tool_calls": 1.0}
    assert [item["type"] for item in response["output"]] == ["function_call", "function_call_output", "message"]
    (prompt,) = verdict.fields["responses_create_params"]["input"]
    assert prompt["content"] == "3 + 4 = ? Reply with the number only."


@needs_library
async def test_calls_that_cannot_be_made_are_answered_and_a_wrong_reply_is_worth_nothing() -> None:
    said: Any = iter([function_call("nope", {}, "c1"), {**function_call("adder_add", {}, "c2"), "arguments": "{"}, "8"])
    verdict, response = await rolled_out(lambda params: reply(next(said)))
    outputs = [item["output"] for item in response["output"] if item["type"] == "function_call_output"]
    assert outputs[0] == "error: unknown tool 'nope'"
    assert outputs[1].startswith("error: invalid JSON in tool arguments")
    assert verdict.reward == 0.0


@needs_library
async def test_another_environment_plays_the_tasks_several_times() -> None:
    said = iter(["8", "7"])
    verdict, _ = await rolled_out(lambda params: reply(next(said)), settings={"id": "best-of-n", "n": 2})
    assert verdict.reward == 0.5
    assert [agent["reward"] for agent in verdict.fields["agents"]] == [0.0, 1.0]
    assert len(verdict.fields["branches"]) == 1


@needs_library
async def test_a_judge_of_the_library_is_asked_through_gymq_and_one_that_decides_nothing_is_no_reward() -> None:
    asked: list[str] = []

    async def judge(model: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(model)
        return reply("yes" if len(asked) == 1 else "perhaps")

    options = {
        "environment": EXAMPLE,
        "arguments": {"task": {"judges": [{"id": "reference", "name": "judged", "weight": 0.5}]}},
        "judge_model_server": {"type": "responses_api_models", "name": "judge"},
    }
    async with Harness(Environments, options, models=ScriptedModel(judge)) as env:
        verdict = await env.verify(ROW, reply("7"))
        assert (verdict.reward, verdict.fields["reward_components"]) == (1.5, {"is_right": 1.0, "judged": 0.5})
        assert asked == ["judge"]
        with pytest.raises(gymq.RolloutError, match="judge returned no yes/no verdict") as raised:
            await env.verify(ROW, reply("8"))
    assert raised.value.failure_class is FailureClass.VERIFIER_FAILED


@needs_library
async def test_a_task_that_is_not_there_is_invalid_and_a_stored_response_is_scored_again() -> None:
    async with Harness(Environments, {"environment": EXAMPLE}) as env:
        with pytest.raises(gymq.InvalidTask, match="has 5 tasks, counted from 0; there is no 5"):
            await env.verify({**ROW, "task": 5}, reply("7"))
        assert (await env.verify(ROW, reply("7"))).reward == 1.0


@needs_library
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"environment": "no_such_taskset"},
            "cannot be loaded: ModuleNotFoundError: taskset 'no_such_taskset'",
        ),
        ({"arguments": {"nope": 1}}, "cannot be loaded: taskset.nope: unknown field"),
        ({"settings": {"agent": {"nope": 1}}}, "cannot be loaded: agent.nope: unknown field"),
    ],
)
async def test_what_cannot_be_loaded_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(gymq.OptionsError, match=problem):
        await Environments({"environment": EXAMPLE, **options}, name="env").start()


@pytest.mark.skipif(has_tasksets(), reason="verifiers 0.4 is installed")
async def test_a_missing_library_names_its_extra() -> None:
    with pytest.raises(gymq.OptionsError, match=r"gymq\[verifiers-tasksets\]"):
        await Environments({"environment": EXAMPLE}, name="env").start()


def test_the_rows_fit() -> None:
    lines = (Path(__file__).parents[1] / "data" / "example.jsonl").read_text().splitlines()
    assert [json.loads(line)["task"] for line in lines] == list(range(5))
