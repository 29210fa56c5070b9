"""Agents with an order of their own: tool simulation, refinement of proofs, Aviary's episodes."""

import json
from typing import Any

import pytest
from gymq.workers.agents.aviary_agent.worker import CALL_A_TOOL, AviaryAgent
from gymq.workers.agents.proof_refinement_agent.worker import ProofRefinementAgent
from gymq.workers.agents.tool_simulation_agent.worker import ToolSimulationAgent
from gymq.workers.resources.aviary.worker import Environments
from gymq.workers.resources.xlam_fc.worker import FunctionCalling

import gymq
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness

AREA = {"expected_answers": [{"name": "area", "arguments": {"width": 2}}], **prompt("Area?", temperature=0.5)}
TASK = {"task_idx": 0, "responses_create_params": {"input": []}}


class Strict(gymq.Resources[gymq.Row]):
    """Accepts the second attempt at a proof, and notes what it is asked."""

    rows: list[Any] = []  # noqa: RUF012

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        self.rows.append(request.row.model_dump())
        right = request.reply_text == "proof 2"
        fields = {"proof_status": "completed" if right else "failed", "error_feedback": None if right else "no"}
        return gymq.Verdict(float(right), needs_correction=not right, correction_prompt="Again.", **fields)


class Apples(Environments):
    def __init__(self) -> None:
        super().__init__({"env": "gsm8k", "problems": [{"question": "3 * 6?", "answer": 18}]})


class Maze(gymq.Resources[gymq.Row]):
    """Speaks the interface of Aviary's worker; every observation is a whole state."""

    @gymq.tool
    async def reset(self) -> dict[str, Any]:
        return {"env_id": "maze", "obs": [state("room 0")], "tools": []}

    @gymq.tool
    async def step(self, action: list[Any], env_id: str) -> dict[str, Any]:
        room = int(json.loads(action[0]["arguments"])["room"])
        return {"obs": [state(f"room {room}")], "reward": 0.0, "done": room == 3}

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0)


def state(text):
    return {"type": "message", "role": "user", "content": text, "is_env_state": True}


def part(text):
    return {"type": "output_text", "text": text, "annotations": []}


def fails(params):
    raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)


async def test_a_reply_is_verified_with_its_calls_as_they_are():
    async with AgentHarness(ToolSimulationAgent, FunctionCalling, lambda _: reply(call("area", width=2))) as harness:
        verdict, response = await harness.run(AREA)
    assert verdict.reward == 1.0
    assert [item["type"] for item in response["output"]] == ["function_call"]


async def test_a_wrong_call_gets_0():
    async with AgentHarness(ToolSimulationAgent, FunctionCalling, lambda _: reply(call("area", width=3))) as harness:
        assert (await harness.run(AREA))[0].reward == 0.0


def call(name, call_id="c", /, **arguments):
    return function_call(name, arguments, call_id)


@pytest.mark.parametrize(
    ("agent", "resources", "row"),
    [
        (ToolSimulationAgent, FunctionCalling, AREA),
        (ProofRefinementAgent, Strict, prompt("Prove it.")),
        (AviaryAgent, Maze, TASK),
    ],
)
async def test_a_model_that_fails_is_a_failure_and_a_verdict_can_be_left_out(agent, resources, row):
    async with AgentHarness(agent, resources, fails) as harness:
        with pytest.raises(gymq.RolloutError, match="out of memory"):
            await harness.run(row)
    skipping = {"skip_verification": True, "skip_verification_reward": 0.25}
    async with AgentHarness(agent, resources, lambda _: reply("I am done."), skipping) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields) == (0.25, {"verification_skipped": True})


async def prove(texts, **options):
    asked, answers = [], iter(texts)

    def model(params):
        asked.append(params)
        return reply(next(answers))

    Strict.rows.clear()
    async with AgentHarness(ProofRefinementAgent, Strict, model, options) as harness:
        verdict, response = await harness.run(
            {"name": "t", **prompt("Prove it.", temperature=0.5, max_output_tokens=9)}
        )
    return verdict, response, asked


async def test_a_correction_is_a_conversation_of_its_own():
    verdict, response, asked = await prove(["proof 1", "proof 2"], max_correction_turns=2)
    assert (verdict.reward, verdict.fields["total_turns"]) == (1.0, 2)
    assert asked[1]["input"] == [{"type": "message", "role": "user", "content": "Again."}]
    assert asked[1]["temperature"] == 0.5
    assert "max_output_tokens" not in asked[1]
    assert [item["content"][0]["text"] for item in response["output"]] == ["proof 2"]
    assert [(row["turn_index"], row["name"]) for row in Strict.rows] == [(0, "t"), (1, "t")]


async def test_every_attempt_is_kept():
    verdict, _, _ = await prove(["proof 1", "proof 2"], max_correction_turns=2)
    kept = [
        (attempt["turn_index"], attempt["generation"], attempt["reward"], attempt["proof_status"])
        for attempt in verdict.fields["all_attempts"]
    ]
    assert kept == [(0, "proof 1", 0.0, "failed"), (1, "proof 2", 1.0, "completed")]


@pytest.mark.parametrize(
    ("said", "generation"),
    [
        (reply("think", " by rfl\n"), " by rfl\n"),
        (reply({"type": "message", "role": "assistant", "content": [part("a"), part("b")]}), "b"),
        (reply({"type": "message", "role": "assistant", "content": "plain"}), "plain"),
        (reply(call("f")), ""),
    ],
)
async def test_the_generation_of_an_attempt_is_the_last_text_as_it_was_written(said, generation):
    async with AgentHarness(ProofRefinementAgent, Strict, lambda _: said) as harness:
        verdict, _ = await harness.run(prompt("Prove it."))
    assert [attempt["generation"] for attempt in verdict.fields["all_attempts"]] == [generation]


async def test_attempts_end_at_their_greatest_number_and_need_not_be_kept():
    verdict, _, asked = await prove(["proof 1"], include_all_attempts=False)
    assert (verdict.reward, verdict.fields["total_turns"], len(asked)) == (0.0, 1, 1)
    assert "all_attempts" not in verdict.fields


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}, {"arguments": "{"}])
async def test_arguments_that_are_missing_or_no_json_are_told_to_the_model(arguments):
    pytest.importorskip("aviary.envs.gsm8k", reason='needs pip install "gymq[aviary]"')
    prompts = []

    def model(params):
        prompts.append(params["input"][-1])
        if len(prompts) == 1:
            return reply({"type": "function_call", "call_id": "c", "name": "calculator", **arguments})
        return reply(call("submit_answer", answer="18"))

    async with AgentHarness(AviaryAgent, Apples, model) as harness:
        assert (await harness.run(TASK))[0].reward == 1.0
    assert "not a valid JSON" in prompts[1]["content"]


async def test_a_wrong_answer_ends_an_episode_with_0():
    pytest.importorskip("aviary.envs.gsm8k", reason='needs pip install "gymq[aviary]"')
    async with AgentHarness(AviaryAgent, Apples, lambda _: reply(call("submit_answer", answer="7"))) as harness:
        assert (await harness.run(TASK))[0].reward == 0.0


def walks(*rooms):
    """A model that goes from room to room, and what it sees."""
    seen = []

    def model(params):
        seen.append([item.get("content", item["type"]) for item in params["input"]])
        assert all("is_env_state" not in item for item in params["input"])
        room = rooms[len(seen) - 1]
        return reply("I stay.") if room is None else reply(call("go", f"c{room}", room=room))

    return model, seen


async def walk(*rooms, **options):
    model, seen = walks(*rooms)
    async with AgentHarness(AviaryAgent, Maze, model, options) as harness:
        _, response = await harness.run(TASK)
    return response, seen


async def test_the_output_is_the_state_after_each_step():
    response, _ = await walk(1, 3)
    assert response["contains_transitions"]
    assert [[item.get("content", item["type"]) for item in state] for state in response["output"]] == [
        ["room 0", "function_call", "room 1"],
        ["room 0", "function_call", "room 1", "function_call", "room 3"],
    ]
    assert (response["env_id"], response["group_id"]) == ("maze", "0")


@pytest.mark.parametrize(("task_idx", "group"), [(7, "7"), ("7", "7"), (7.0, "7")])
async def test_the_group_is_the_task_index_as_the_environment_reads_it(task_idx, group):
    model, _ = walks(3)
    async with AgentHarness(AviaryAgent, Maze, model) as harness:
        _, response = await harness.run(TASK | {"task_idx": task_idx})
    assert response["group_id"] == group


async def test_a_row_without_a_task_index_is_refused_before_the_model_is_asked():
    async with AgentHarness(AviaryAgent, Maze, fails) as harness:
        with pytest.raises(gymq.InvalidTask, match="task_idx"):
            await harness.run({"responses_create_params": {"input": []}})


@pytest.mark.parametrize("max_steps", [-1, 1.5])
def test_a_number_of_steps_that_is_none_is_refused(max_steps):
    with pytest.raises(gymq.OptionsError, match="max_steps"):
        AgentHarness(AviaryAgent, Maze, fails, {"max_steps": max_steps})


async def test_the_output_can_be_one_list_of_items():
    response, _ = await walk(1, 3, return_transitions=False)
    assert not response["contains_transitions"]
    assert [item.get("content", item["type"]) for item in response["output"]] == [
        "function_call",
        "room 1",
        "function_call",
        "room 3",
    ]


async def test_only_the_newest_state_is_shown_if_so_wished():
    _, seen = await walk(1, 2, 3, collapse_old_env_states=True, old_env_state_message="...")
    assert seen[2] == ["...", "function_call", "...", "function_call", "room 2"]


async def test_the_newest_state_is_shown_until_there_is_another():
    options = {"collapse_old_env_states": True, "old_env_state_message": "...", "done_if_no_tool_calls": False}
    _, seen = await walk(1, None, 3, **options)
    assert seen[2][:3] == ["...", "function_call", "room 1"]


async def test_a_message_without_a_call_ends_the_episode():
    response, seen = await walk(1, None)
    assert len(seen) == 2
    assert response["output"][-1][-1]["content"][0]["text"] == "I stay."


async def test_a_message_without_a_call_can_be_answered_and_what_the_agent_says_is_no_part_of_the_output():
    response, seen = await walk(None, 3, done_if_no_tool_calls=False, return_transitions=False)
    assert seen[1][-1] == CALL_A_TOOL
    assert CALL_A_TOOL not in [item.get("content") for item in response["output"]]


async def test_an_episode_that_no_longer_fits_the_models_context_ends():
    no_room = reply("") | {"incomplete_details": {"reason": "max_output_tokens"}}
    options = {"done_if_no_tool_calls": False, "max_steps": 5, "return_transitions": False}
    async with AgentHarness(AviaryAgent, Maze, lambda _: no_room, options) as harness:
        _, response = await harness.run(TASK)
    assert response["output"] == no_room["output"]


async def test_an_episode_ends_at_its_greatest_number_of_steps():
    _, seen = await walk(1, 1, 1, 1, max_steps=2)
    assert len(seen) == 2
