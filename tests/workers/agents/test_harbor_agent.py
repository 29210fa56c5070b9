"""Harbor's tasks in real containers."""

import asyncio
import shutil
from pathlib import Path

import pytest
from gymq.workers.agents.harbor_agent.task import Task
from gymq.workers.agents.harbor_agent.worker import HarborAgent

import gymq
from gymq.ext.containers import Docker, network_address
from gymq.testing import function_call, reply
from gymq.testing.agent_harness import AgentHarness

from .crashes import uninterrupted, with_a_crash
from .swe import needs_docker

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = sorted(path.name for path in (EXAMPLES / "harbor").iterdir())


@pytest.fixture(autouse=True)
def engine():
    needs_docker()


class Nobody(gymq.Resources[gymq.Row]):
    """Tasks of Harbor bring their own tests."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        raise AssertionError("no agent of Harbor asks for this verdict")


def options(folder=EXAMPLES / "harbor", **more):
    return {
        "harbor_datasets": {"shell": {"local_dataset_path": str(folder)}},
        "agent_command": "PROBLEM_STATEMENT=$INSTRUCTION python3 /coder/coder.py",
        "agent_folders": {"/coder": str(EXAMPLES / "swe")},
        "concurrency": 2,
        **more,
    }


def row(name):
    return {"instance_id": f"shell::{name}", "responses_create_params": {"input": []}}


def does(*commands):
    """A model that gives one command a turn."""

    def model(params):
        turn = sum(item.get("type") == "function_call_output" for item in params["input"])
        if turn == len(commands):
            return reply("Done.")
        return reply(function_call("bash", {"command": commands[turn]}, f"c{turn}"))

    return model


async def run(model, name, **more):
    async with AgentHarness(HarborAgent, Nobody, model, options(**more)) as harness:
        return await harness.run(row(name))


async def test_the_solutions_of_the_examples_get_1():
    rows = [row(name) for name in NAMES]
    async with AgentHarness(HarborAgent, Nobody, does(), options(harbor_agent_name="oracle")) as harness:
        done = await asyncio.gather(*map(harness.run, rows))
    assert [verdict.reward for verdict, _ in done] == [1.0] * 5


async def test_a_program_that_does_what_it_is_told_gets_1():
    verdict, response = await run(does("ls", "echo hello > greeting.txt"), "greeting")
    assert (verdict.reward, verdict.fields["rewards"]) == (1.0, {"reward": 1.0})
    assert [item["type"] for item in response["output"]] == ["function_call", "function_call_output"] * 2 + ["message"]
    instruction = verdict.fields["responses_create_params"]["input"][0]["content"]
    assert instruction.startswith("Write the text `hello`")


async def test_a_conversation_that_outgrows_the_models_context_is_told():
    no_room = reply("") | {"incomplete_details": {"reason": "max_output_tokens"}}
    verdict, _ = await run(lambda _: no_room, "greeting")
    errors = {name: value for name, value in verdict.fields.items() if name.endswith("_error")}
    expected = {"context_length_exceeded_error": 1.0, "agent_timeout_error": 0.0, "memory_limit_exceeded_error": 0.0}
    assert (verdict.reward, errors) == (0.0, expected)


async def test_the_folder_where_a_program_begins_may_have_a_space_in_its_name():
    folder = {"local_dataset_path": str(EXAMPLES / "harbor"), "workdir": "/tmp/a folder"}
    more = {"harbor_datasets": {"shell": folder}, "agent_command": "echo begun"}
    with pytest.raises(gymq.RolloutError, match="can't cd to /tmp/a folder"):
        await run(does(), "greeting", **more)


async def test_a_program_that_does_nothing_gets_0():
    verdict, _ = await run(does(), "greeting")
    assert verdict.reward == 0.0


async def test_what_the_model_writes_as_its_reward_does_not_count():
    cheat = "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh"
    verdict, _ = await run(does(cheat), "greeting")
    assert verdict.reward == 0.0


async def test_a_rollout_continues_after_a_crash_and_pays_no_turn_twice(bus, run):
    async with AgentHarness(HarborAgent, Nobody, does("ls", "echo hello > greeting.txt"), options()) as harness:
        expected, num_effects = await uninterrupted(harness, row("greeting"))
        for at in range(1, num_effects + 1):
            done = await with_a_crash(bus, run, harness, row("greeting"), at, hears_last=True)
            assert (done.verdict.reward, done.response) == (1.0, expected.response)
            assert done.num_model_calls == expected.num_model_calls == 3


NO_REWARDS = {
    "exit 1": "wrote no reward",
    "echo high > /logs/verifier/reward.txt": "which is not a reward",
    "echo nan > /logs/verifier/reward.txt": "which is not a reward",
    "echo '{' > /logs/verifier/reward.json": "not JSON",
    "head -c 99999 /dev/zero | tr '\\0' '[' > /logs/verifier/reward.json": "not JSON",
    "printf '1%0400d' 0 > /logs/verifier/reward.json": "not a reward",
    "sleep 600": "ended by the limit of time",
}


async def test_tests_without_a_reward_are_a_failure_and_no_zero(tmp_path):
    folder = tmp_path / "greeting"
    shutil.copytree(EXAMPLES / "harbor" / "greeting", folder)
    task = Task(folder)
    await network_address()
    async with Docker(await task.image(), life_s=120.0) as place:
        for test, why in NO_REWARDS.items():
            (folder / "tests" / "test.sh").write_text(test)
            with pytest.raises(gymq.RolloutError, match=why) as raised:
                await task.verify(place, 3.0)
            assert raised.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_several_rewards_are_kept_and_the_one_named_reward_counts(tmp_path):
    asked = row("greeting")
    shutil.copytree(EXAMPLES / "harbor" / "greeting", tmp_path / "greeting")
    several = """echo '{"style": 0.25, "reward": 0.5}' > /logs/verifier/reward.json"""
    written = f"echo 1 > /logs/verifier/reward.txt; {several}"
    (tmp_path / "greeting" / "tests" / "test.sh").write_text(written)
    async with AgentHarness(HarborAgent, Nobody, does(), options(tmp_path)) as harness:
        verdict, _ = await harness.run(asked)
    assert (verdict.reward, verdict.fields["rewards"]) == (0.5, {"style": 0.25, "reward": 0.5})


async def test_a_program_that_takes_too_long_is_ended_verified_and_masked():
    more = {"harbor_agent_max_timeout_sec": 5.0, "agent_command": f"{options()['agent_command']}; sleep 600"}
    verdict, _ = await run(does("echo hello > greeting.txt"), "greeting", **more)
    members = verdict.fields
    assert (verdict.reward, members["agent_timeout_error"], members["mask_sample"]) == (1.0, 1.0, True)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({}, 20.0),
        ({"harbor_agent_override_timeout_sec": 30.0}, 30.0),
        ({"harbor_agent_max_timeout_sec": 10.0}, 10.0),
        ({"harbor_agent_max_timeout_sec": 50.0}, 20.0),
        ({"harbor_agent_override_timeout_sec": 30.0, "harbor_agent_max_timeout_sec": 10.0}, 10.0),
        ({"harbor_agent_max_timeout_sec": 10.0, "harbor_timeout_multiplier": 3.0}, 30.0),
        ({"harbor_verifier_max_timeout_sec": 10.0}, 20.0),
    ],
)
def test_limits_are_replaced_then_capped_then_multiplied(limits, seconds):
    harness = AgentHarness(HarborAgent, Nobody, does(), options(**limits))
    assert harness.agent._timeout_s("agent", 20.0) == seconds


def test_a_task_without_a_limit_has_that_of_harbor():
    assert AgentHarness(HarborAgent, Nobody, does(), options()).agent._timeout_s("verifier", None) == 600.0


@pytest.mark.parametrize("instance_id", ["greeting", "other::greeting", "shell::../../..", "shell::", "shell::missing"])
async def test_a_task_that_is_not_there_is_refused(instance_id):
    asked = row("greeting") | {"instance_id": instance_id}
    async with AgentHarness(HarborAgent, Nobody, does(), options()) as harness:
        with pytest.raises(gymq.InvalidTask, match=r"instance_id|has no task\.toml"):
            await harness.run(asked)
