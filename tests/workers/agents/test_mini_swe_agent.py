"""mini-swe-agent's real loop in real containers."""

import asyncio
import subprocess
from typing import Any

import pytest
from gymq.workers.agents.mini_swe_agent.worker import MiniSweAgent

import gymq
from gymq.testing import function_call, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.waiting import until

from .crashes import uninterrupted, with_a_crash
from .swe import SUBMIT, instance, repair

pytest.importorskip("minisweagent", reason="needs pip install -r workers/agents/mini_swe_agent/requirements.txt")

NAME = "demo__shapes-1"
DOCKER = {"env": "docker", "concurrency": 4}


class PatchSeen(gymq.Resources[gymq.Row]):
    """Reward 1 if the response ends with a diff."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(float(str(request.response["output"][-1].get("content")).startswith("diff --git")))


def plays(commands, sent=None):
    """A model that gives one command a turn, with tokens."""

    def model(params):
        turn = sum(item.get("type") == "function_call_output" for item in params["input"])
        response = reply(function_call("bash", {"command": commands[turn]}, f"c{turn}"))
        tokens = {"prompt_token_ids": [turn], "generation_token_ids": [7, turn], "generation_log_probs": [-0.5, -0.25]}
        response["output"][-1] |= tokens
        if sent is not None:
            sent.append(params)
        return response

    return model


def containers():
    listed = subprocess.run(["docker", "ps", "-aq", "--filter", "name=minisweagent"], capture_output=True, check=True)
    return set(listed.stdout.split())


async def test_the_patch_that_is_submitted_ends_the_response_and_tokens_stay_on_their_items():
    row = instance(NAME)
    sent: list[Any] = []
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(repair(row), sent), DOCKER) as harness:
        verdict, response = await harness.run(row)
    assert verdict.reward == 1.0
    assert response["output"][-1]["content"] == row["patch"]
    assert [item["type"] for item in response["output"]] == ["function_call", "function_call_output"] * 3 + [
        "function_call",
        "message",
    ]
    assert [item["generation_token_ids"][1] for item in response["output"] if item["type"] == "function_call"] == [
        *range(4)
    ]
    assert sent[3]["input"][2]["generation_token_ids"] == [7, 0]  # the model gets its tokens back
    prompt = verdict.fields["responses_create_params"]["input"]
    assert [item["role"] for item in prompt] == ["system", "user"]
    assert row["problem_statement"] in prompt[1]["content"]


async def test_a_rollout_continues_after_a_crash_at_any_turn_and_pays_no_turn_twice(bus, run):
    row = instance(NAME)
    before = containers()
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(repair(row)), DOCKER) as harness:
        expected, _ = await uninterrupted(harness, row)
        assert expected.num_model_calls == 4
        for at in range(1, 5):
            done = await with_a_crash(bus, run, harness, row, at, hears_last=True)
            assert (done.verdict.reward, done.response) == (1.0, expected.response)
            assert done.num_model_calls == 4
    assert containers() <= before


async def test_a_reply_without_a_command_is_answered_and_stays_in_the_history():
    row = instance(NAME)

    def model(params):
        if len(params["input"]) == 2:
            return reply("I would rather talk.")
        return reply(function_call("bash", {"command": f"echo > patch.txt; {SUBMIT}"}))

    async with AgentHarness(MiniSweAgent, PatchSeen, model, DOCKER) as harness:
        verdict, response = await harness.run(row)
    assert [item.get("role", item["type"]) for item in response["output"]] == [
        "assistant",
        "user",
        "function_call",
        "user",
    ]
    assert "No tool calls" in response["output"][1]["content"]
    assert verdict.reward == 0.0


async def test_the_third_reply_in_a_row_without_a_command_ends_an_episode():
    row = instance(NAME)
    async with AgentHarness(MiniSweAgent, PatchSeen, lambda params: reply("Hm."), DOCKER) as harness:
        verdict, response = await harness.run(row)
    assert (verdict.reward, response["output"][-1]["content"]) == (0.0, "RepeatedFormatError")
    assert sum(item.get("role") == "assistant" for item in response["output"]) == 3


async def test_a_conversation_that_no_longer_fits_the_models_context_ends_an_episode():
    row = instance(NAME)
    asked = []

    def model(params):
        asked.append(params)
        if len(asked) == 1:
            return reply(function_call("bash", {"command": "ls"}))
        return reply("") | {"incomplete_details": {"reason": "max_output_tokens"}}

    async with AgentHarness(MiniSweAgent, PatchSeen, model, DOCKER) as harness:
        verdict, response = await harness.run(row)
    assert (verdict.reward, len(asked)) == (0.0, 2)
    assert [item["type"] for item in response["output"]] == ["function_call", "function_call_output", "message"]
    assert response["output"][-1]["content"] == "ContextWindowExceeded"


async def test_a_command_that_takes_too_long_is_something_the_model_reads():
    row = instance(NAME)
    commands = ["sleep 60", f"echo > patch.txt; {SUBMIT}"]
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(commands), DOCKER | {"step_timeout": 1}) as harness:
        _, response = await harness.run(row)
    assert "timed out" in response["output"][1]["output"]


async def test_the_step_limit_ends_an_episode():
    row = instance(NAME)
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(["ls"] * 9), DOCKER | {"step_limit": 2}) as harness:
        verdict, response = await harness.run(row)
    assert response["output"][-1]["content"] == "LimitsExceeded"
    assert verdict.reward == 0.0


async def test_a_container_that_is_lost_is_a_failure_and_no_zero():
    row = instance(NAME)
    before = containers()
    killed = set()

    def model(params):
        killed.update(containers() - before)
        subprocess.run(["docker", "rm", "-f", *killed], capture_output=True, check=True)
        return reply(function_call("bash", {"command": "ls"}))

    async with AgentHarness(MiniSweAgent, PatchSeen, model, DOCKER) as harness:
        with pytest.raises(gymq.ComponentFailed, match="is gone"):
            await harness.run(row)


async def test_an_image_that_is_not_there_is_a_failure_and_no_zero():
    row = instance(NAME) | {"image": "gymq-swe/none:latest"}
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(["ls"]), DOCKER) as harness:
        with pytest.raises(gymq.ComponentFailed, match="no container of gymq-swe/none"):
            await harness.run(row)


async def test_a_cancelled_rollout_leaves_no_container():
    row = instance(NAME)
    before = containers()

    def model(params):
        return reply(function_call("bash", {"command": "touch /tmp/runs && sleep 300"}))

    def runs(container):
        return subprocess.run(["docker", "exec", container, "test", "-e", "/tmp/runs"], check=False).returncode == 0

    async with AgentHarness(MiniSweAgent, PatchSeen, model, DOCKER | {"concurrency": 1}) as harness:
        running = asyncio.create_task(harness.run(row))
        await until(lambda: any(map(runs, containers() - before)))
        running.cancel()
        await asyncio.wait([running])
        harness.agent._threads.shutdown(wait=True)
    assert containers() <= before


async def test_the_reference_patch_is_submitted_without_a_model():
    row = instance(NAME)

    def model(params):
        raise AssertionError("the model was asked")

    async with AgentHarness(MiniSweAgent, PatchSeen, model, DOCKER | {"run_golden": True}) as harness:
        verdict, _ = await harness.run(row)
    assert verdict.reward == 1.0


async def test_swebench_gives_the_reference_1_and_an_unchanged_repository_0():
    pytest.importorskip("swebench", reason="needs pip install -r workers/resources/mini_swe_agent/requirements.txt")
    from gymq.workers.resources.mini_swe_agent.worker import MiniSwe

    row = instance(NAME)
    wrong = row | {"patch": row["patch"].replace("/ 2)", "/ 3)")}

    async def reward(case):
        async with AgentHarness(MiniSweAgent, MiniSwe, plays(repair(case)), DOCKER) as harness:
            return (await harness.run(case))[0].reward

    assert list(await asyncio.gather(reward(row), reward(wrong))) == [1.0, 0.0]


async def test_images_of_singularity_are_found_by_the_template(tmp_path, monkeypatch):
    """Stands in for the program `singularity`: it notes how it is called."""
    calls = tmp_path / "calls"
    program = tmp_path / "singularity"
    program.write_text(
        f'#!/bin/bash\necho "$@" >> {calls}\nif [ "$1" = build ]; then mkdir "$3"; else bash -c "${{@: -1}}"; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    row = {"instance_id": "demo__shapes-1", "problem_statement": "?", "responses_create_params": {"input": []}}
    options = {"env": "singularity", "cache_dir_template": "/images/{instance_id}.sif"}
    commands = ["echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo 'diff --git a b'"]
    async with AgentHarness(MiniSweAgent, PatchSeen, plays(commands), options) as harness:
        verdict, _ = await harness.run(row)
    assert verdict.reward == 1.0
    assert "/images/demo__shapes-1.sif" in calls.read_text()
