"""Tasks of Inspect with its own library: solvers, tools, scorers, judges, errors, many samples at once."""

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.agents.answering_agent.worker import AnsweringAgent
from gymq.workers.resources.inspect_ai.worker import Tasks

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, ScriptedModel, function_call, reply
from gymq.testing.agent_harness import AgentHarness

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("inspect_ai") is None, reason="needs inspect_ai: make test-in NAME=hubs"
)
EXAMPLES = Path(__file__).parents[1] / "example_task.py"
JUDGE = {"judge_model_server": {"type": "responses_api_models", "name": "judge"}}


def row(sample: int = 0) -> dict[str, Any]:
    return {"sample": sample, "responses_create_params": {"input": []}}


def environment(name: str = "sums", **options: Any) -> type[Tasks]:
    class Env(Tasks):
        def __init__(self, _: Any = None) -> None:
            super().__init__({"task": f"{EXAMPLES}@{name}", **options}, name="env")

    return Env


def adds(params: dict[str, Any]) -> dict[str, Any]:
    last = params["input"][-1]
    if last.get("type") == "function_call_output":
        return reply(last["output"])
    a, b = last["content"].removesuffix(" = ?").split(" + ")
    return reply(function_call("add", {"a": int(a), "b": int(b)}, "c1"))


@needs_library
async def test_solvers_tools_and_scorers_are_those_of_the_task_for_many_samples_at_once() -> None:
    async with AgentHarness(AnsweringAgent, environment(), adds) as harness:
        done = await asyncio.gather(*(harness.run(row(number)) for number in [*range(5), *range(5)]))
    assert [verdict.reward for verdict, _ in done] == [1.0] * 10
    verdict, response = done[0]
    assert verdict.fields["scores"] == {"match": {"value": "C", "answer": "7", "explanation": "7"}}
    assert [item["type"] for item in response["output"]] == ["function_call", "function_call_output", "message"]
    system, user = verdict.fields["responses_create_params"]["input"]
    assert (system["content"], user["content"]) == ("Reply with the number only.", "3 + 4 = ?")


@needs_library
async def test_a_limit_ends_a_sample_that_calls_without_end_and_unknown_tools_are_answered() -> None:
    async with AgentHarness(
        AnsweringAgent, environment(), lambda params: reply(function_call("nope", {}, "c"))
    ) as harness:
        verdict, response = await harness.run(row())
    assert (verdict.reward, verdict.fields["limit"]) == (0.0, "message")
    outputs = [item["output"] for item in response["output"] if item["type"] == "function_call_output"]
    assert "nope" in outputs[0]


@needs_library
async def test_a_scorer_asks_the_judge_and_never_the_policy() -> None:
    async def grades(model: str, params: dict[str, Any]) -> dict[str, Any]:
        return reply("It is right. GRADE: C")

    judge = ScriptedModel(grades)
    async with Harness(environment("graded_sums", **JUDGE), models=judge) as env:
        assert (await env.verify(row(), reply("7"))).reward == 1.0
    async with Harness(environment("graded_sums")) as env:
        with pytest.raises(gymq.RolloutError, match="`judge_model_server` names none") as raised:
            await env.verify(row(), reply("7"))
    assert raised.value.failure_class is FailureClass.JUDGE_FAILED


@needs_library
async def test_a_sample_or_a_score_that_is_not_there_is_no_reward() -> None:
    async with Harness(environment(score="f1")) as env:
        with pytest.raises(gymq.InvalidTask, match="has 5 samples, counted from 0; there is no 5"):
            await env.verify(row(5), reply("7"))
        with pytest.raises(gymq.RolloutError, match="'f1' does not name one of the task's scores; there are: match"):
            await env.verify(row(), reply("7"))


@needs_library
@pytest.mark.parametrize("task", [f"{EXAMPLES}@nope", "no_such_package/nope"])
async def test_what_cannot_be_loaded_is_named(task: str) -> None:
    with pytest.raises(gymq.OptionsError, match=r"env: task: .* cannot be loaded: "):
        await Tasks({"task": task}, name="env").start()


@needs_library
async def test_a_second_task_in_the_same_process_is_refused() -> None:
    async with Harness(environment()):
        with pytest.raises(gymq.OptionsError, match="Inspect runs one task in each"):
            await Tasks({"task": f"{EXAMPLES}@sums"}, name="other").start()


@pytest.mark.skipif(importlib.util.find_spec("inspect_ai") is not None, reason="Inspect is installed")
async def test_a_missing_library_names_its_extra() -> None:
    with pytest.raises(gymq.OptionsError, match=r"gymq\[inspect\]"):
        await Tasks({"task": f"{EXAMPLES}@sums"}, name="env").start()
