"""A coding agent as a program in real containers."""

import json
import subprocess
from pathlib import Path

import pytest
from gymq.workers.agents.swe_agents.instance import read
from gymq.workers.agents.swe_agents.worker import SweAgents

import gymq
from gymq.ext.containers.container import Container
from gymq.testing import function_call, reply
from gymq.testing.agent_harness import AgentHarness

from .crashes import uninterrupted, with_a_crash
from .swe import instance

NAME = "demo__words-3"
CODER = str(Path(__file__).parents[3] / "examples" / "swe")
OPTIONS = {"agent_command": "python3 /coder/coder.py", "agent_folders": {"/coder": CODER}, "concurrency": 2}

REFERENCES = {
    "model_server": {"type": "responses_api_models", "name": "model"},
    "resources_server": {"type": "resources_servers", "name": "resources"},
}


class PatchSeen(gymq.Resources[gymq.Row]):
    """Reward 1 if the response ends with a diff."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        patch = str(request.response["output"][-1].get("content"))
        return gymq.Verdict(float(patch.startswith("diff --git")), metadata={"eval_report": {}} if patch else None)


def solves(row):
    """A model that repairs the repository in its second turn."""
    commands = ["ls", f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"]

    def model(params):
        turn = sum(item.get("type") == "function_call_output" for item in params["input"])
        if turn == len(commands):
            response = reply("Done.")
        else:
            response = reply(function_call("bash", {"command": commands[turn]}, f"c{turn}"))
        prompt = [token for before in range(turn) for token in (before, 100, 101)] + [turn]
        response["output"][-1] |= {
            "prompt_token_ids": prompt,
            "generation_token_ids": [100, 101],
            "generation_log_probs": [-0.5, -0.25],
        }
        return response

    return model


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the containers that this process started; other tests have some of the same image."""
    names = set()
    start = Container.start

    async def noted(container: Container) -> None:
        names.add(container.name)
        await start(container)

    monkeypatch.setattr(Container, "start", noted)
    return names


def containers() -> set[str]:
    """The names of all containers of agents."""
    command = ["docker", "ps", "--all", "--filter", "name=gymq-harness", "--format", "{{.Names}}"]
    return set(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())


async def test_what_the_program_changed_is_the_patch_and_its_calls_are_the_conversation():
    row = instance(NAME)
    async with AgentHarness(SweAgents, PatchSeen, solves(row), OPTIONS) as harness:
        verdict, response = await harness.run(row)
    assert verdict.reward == 1.0
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["function_call", "function_call_output"] * 2 + ["message", "message"]
    assert response["output"][-1]["content"] == row["patch"]
    sampled = [item for item in response["output"] if "generation_token_ids" in item]
    assert [list(item["prompt_token_ids"])[-1] for item in sampled] == [0, 1, 2]
    members = verdict.fields
    assert (members["resolved"], members["patch_exists"], members["mask_sample"]) == (True, True, False)
    assert members["_ng_token_capture"]["chains"] == 1
    assert members["responses_create_params"]["input"][0]["content"] == row["problem_statement"]


async def test_a_rollout_continues_after_a_crash_at_any_turn_and_pays_no_turn_twice(bus, run, started):
    row = instance(NAME)
    async with AgentHarness(SweAgents, PatchSeen, solves(row), OPTIONS) as harness:
        expected, _ = await uninterrupted(harness, row)
        for at in range(1, 4):
            done = await with_a_crash(bus, run, harness, row, at, hears_last=True)
            assert (done.verdict.reward, done.response) == (1.0, expected.response)
            assert done.num_model_calls == expected.num_model_calls == 3
    assert len(started) >= 4  # one for each attempt, at least
    assert not started & containers()


async def test_an_instance_in_the_metadata_of_the_request_is_not_sent_to_the_model():
    whole = instance(NAME)
    inner = {
        name: value for name, value in whole.items() if name not in ("problem_statement", "responses_create_params")
    }
    metadata = {"problem_statement": whole["problem_statement"], "instance_dict": json.dumps(inner), "voice": "calm"}
    params = {"input": [], "metadata": metadata}
    asked, plays = [], solves(whole)

    def model(params):
        asked.append(params.get("metadata"))
        return plays(params)

    async with AgentHarness(SweAgents, PatchSeen, model, OPTIONS) as harness:
        verdict, _ = await harness.run({"responses_create_params": params})
    assert (verdict.reward, asked) == (1.0, [{"voice": "calm"}] * 3)
    assert verdict.fields["responses_create_params"]["metadata"] == metadata


@pytest.mark.parametrize("arguments", ["{", "[1]", "{}", '{"command": 5}', '{"command": "printf \'\\\\377\'"}'])
async def test_the_example_tells_the_model_of_a_call_that_cannot_be_run_and_continues(arguments):
    row = instance(NAME)
    plays = solves(row)

    def model(params):
        called = sum(item.get("type") == "function_call_output" for item in params["input"])
        if called == 0:
            return reply(function_call("bash", {}) | {"arguments": arguments})
        return plays({"input": params["input"][2:]})

    async with AgentHarness(SweAgents, PatchSeen, model, OPTIONS) as harness:
        assert (await harness.run(row))[0].reward == 1.0


async def test_a_base_commit_is_no_part_of_the_shells_script():
    row = instance(NAME) | {"base_commit": "HEAD; true"}
    async with AgentHarness(SweAgents, PatchSeen, lambda params: reply("No."), OPTIONS) as harness:
        with pytest.raises(gymq.ComponentFailed, match="HEAD; true"):
            await harness.run(row)


async def test_a_program_that_changes_nothing_gets_0():
    row = instance(NAME)
    async with AgentHarness(SweAgents, PatchSeen, lambda params: reply("No."), OPTIONS) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields["patch_exists"]) == (0.0, False)


async def test_a_program_that_crashes_is_a_failure_and_no_zero():
    row = instance(NAME)
    options = OPTIONS | {"agent_command": "echo no such module >&2; exit 3"}
    async with AgentHarness(SweAgents, PatchSeen, solves(row), options) as harness:
        with pytest.raises(
            gymq.RolloutError, match="ended with status 3 after 0 model calls and without a patch: no such module"
        ):
            await harness.run(row)


async def test_a_model_that_fails_is_a_failure_and_no_zero():
    row = instance(NAME)

    def model(params):
        raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)

    async with AgentHarness(SweAgents, PatchSeen, model, OPTIONS) as harness:
        with pytest.raises(gymq.RolloutError, match="out of memory"):
            await harness.run(row)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"agent_max_turns": 2}, "max_iteration"), ({"swebench_agent_timeout": 5.0}, "timeout")],
)
async def test_a_sample_whose_program_was_cut_short_is_masked(options, error):
    row = instance(NAME)
    if error == "timeout":
        options["agent_command"] = f"{OPTIONS['agent_command']}; sleep 600"
    async with AgentHarness(SweAgents, PatchSeen, solves(row), OPTIONS | options) as harness:
        verdict, _ = await harness.run(row)
    members = verdict.fields
    assert (verdict.reward, members["agent_error"], members["mask_sample"]) == (1.0, error, True)


async def test_a_right_patch_of_a_program_that_outgrew_the_models_context_is_masked():
    row = instance(NAME)
    plays = solves(row)

    def model(params):
        done = sum(item.get("type") == "function_call_output" for item in params["input"]) == 2
        return reply("") | {"incomplete_details": {"reason": "max_output_tokens"}} if done else plays(params)

    async with AgentHarness(SweAgents, PatchSeen, model, OPTIONS) as harness:
        verdict, _ = await harness.run(row)
    members = verdict.fields
    assert (verdict.reward, members["agent_error"], members["mask_sample"]) == (1.0, "context_window", True)


async def test_a_program_that_outgrew_the_models_context_and_changed_nothing_gets_0():
    """Programs report it as an error, like a limit on model calls."""

    def model(params):
        return reply("") | {"incomplete_details": {"reason": "max_output_tokens"}}

    row = instance(NAME)
    options = OPTIONS | {"agent_command": f"{OPTIONS['agent_command']}; exit 1"}
    async with AgentHarness(SweAgents, PatchSeen, model, options) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields["agent_error"]) == (0.0, "context_window")


async def test_a_right_patch_of_a_program_that_ended_with_an_error_is_not_masked():
    row = instance(NAME)
    options = OPTIONS | {"agent_command": f"{OPTIONS['agent_command']}; exit 3"}
    async with AgentHarness(SweAgents, PatchSeen, solves(row), options) as harness:
        verdict, _ = await harness.run(row)
    members = verdict.fields
    assert (verdict.reward, members["agent_error"], members["mask_sample"]) == (1.0, "other", False)


def never_asked(params):
    raise AssertionError("the model was asked")


async def test_the_reference_patch_is_submitted_without_a_model():
    row = instance(NAME)
    async with AgentHarness(SweAgents, PatchSeen, never_asked, OPTIONS | {"verify_golden_patch": True}) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields["resolved"]) == (1.0, True)


def test_an_instance_may_be_in_the_metadata_of_the_request():
    inner = {"instance_id": "a__b-1", "patch": "p", "FAIL_TO_PASS": ["t"]}
    metadata = {"problem_statement": "Broken.", "instance_id": "a__b-1", "instance_dict": json.dumps(inner)}
    found, row = read(b'{"responses_create_params": {}}', metadata)
    assert (found.problem_statement, found.patch) == ("Broken.", "p")
    assert found.image_of(None) == "swebench/sweb.eval.x86_64.a_1776_b-1:latest"
    assert found.image_of("/images/{instance_id}.sif") == "/images/a__b-1.sif"
    assert json.loads(row)["FAIL_TO_PASS"] == ["t"]


@pytest.mark.parametrize("name", ["../../home/x/other", "/x", "a/../../b"])
def test_the_name_of_an_instance_leads_to_no_other_image(name):
    row = {"instance_id": name, "problem_statement": "Broken."}
    with pytest.raises(gymq.InvalidTask, match="plain absolute path"):
        read(json.dumps(row).encode(), {})


@pytest.mark.parametrize("image", ["/", "/proc/self/root", "./", "x/../.."])
def test_a_folder_of_the_machine_is_no_image(image, tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    row = {"instance_id": "a__b-1", "problem_statement": "Broken.", "image": image}
    found, _ = read(json.dumps(row).encode(), {})
    with pytest.raises(gymq.InvalidTask, match="is a folder of this machine"):
        found.image_of(None)
    assert found.image_of("/images/{instance_id}.sif") == "/images/a__b-1.sif"


@pytest.mark.parametrize("template", ["/images/{name}.sif", "/images/{}.sif", "/images/{instance_id.x}", "{"])
def test_a_template_of_images_that_names_something_else_is_refused(template):
    with pytest.raises(gymq.OptionsError, match="container_formatter: expected"):
        SweAgents(OPTIONS | REFERENCES | {"container_formatter": template})


def test_a_row_without_a_reference_patch_cannot_submit_it():
    found, _ = read(b'{"instance_id": "a__b-1", "problem_statement": "Broken."}', {})
    with pytest.raises(gymq.InvalidTask, match="a__b-1 has no patch"):
        found.reference()


def test_a_row_without_an_instance_is_refused():
    with pytest.raises(gymq.InvalidTask, match="instance_id"):
        read(b"{}", {})


async def test_swebench_gives_the_programs_patch_1():
    pytest.importorskip("swebench", reason="needs pip install -r workers/resources/mini_swe_agent/requirements.txt")
    from gymq.workers.resources.mini_swe_agent.worker import MiniSwe

    row = instance(NAME)
    async with AgentHarness(SweAgents, MiniSwe, solves(row), OPTIONS) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields["patch_successfully_applied"]) == (1.0, True)
