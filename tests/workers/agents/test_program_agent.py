"""A program as an agent, with options only."""

import asyncio
import json
import logging
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gymq.workers.agents.program_agent.worker import ProgramAgent
from gymq.workers.resources.mcqa.worker import MultipleChoice

import gymq
from gymq.protocol.messages import FailureClass
from gymq.redaction import redact
from gymq.sandbox import ProgramResult, Subprocess
from gymq.testing import prompt, reply
from gymq.testing.agent_harness import AgentHarness

from .crashes import uninterrupted, with_a_crash
from .swe import needs_docker

FOLDER = Path(__file__).parents[3] / "workers" / "agents" / "program_agent"
EXAMPLE = str(FOLDER / "example_program.py")
REFERENCES = {
    "model_server": {"type": "responses_api_models", "name": "model"},
    "resources_server": {"type": "resources_servers", "name": "resources"},
}
ASK = """
import json, os, sys, urllib.request
def ask(text):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


class Echo(gymq.Resources[gymq.Row]):
    """Shows what the model was asked last."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0, reply=request.reply_text)


def echo(params: dict[str, Any]) -> dict[str, Any]:
    content = params["input"][-1]["content"]
    return reply(content if isinstance(content, str) else content[0]["text"])


def program(tmp_path: Path, text: str, name: str = "mine.py") -> dict[str, Any]:
    """Options for a program of some lines, which can `ask` the model."""
    (tmp_path / name).write_text(ASK + text)
    return {"command": f"python {name}", "files": [str(tmp_path / name)]}


async def asked_by(options: dict[str, Any], row: dict[str, Any] | None = None) -> Any:
    """What a program asked the model."""
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        verdict, _ = await harness.run(prompt("What is the capital of Switzerland?") if row is None else row)
    return verdict.fields["reply"]


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]


def chooses(*letters: str) -> Any:
    def model(params: dict[str, Any]) -> dict[str, Any]:
        turn = sum(item.get("role") == "assistant" for item in params["input"])
        return reply(f"\\boxed{{{letters[turn]}}}")

    return model


@pytest.mark.parametrize(("letters", "reward"), [("AB", 1.0), ("BA", 0.0)])
async def test_the_conversation_of_the_example_is_verified(letters: str, reward: float) -> None:
    options = {"command": "python example_program.py", "files": [EXAMPLE]}
    async with AgentHarness(ProgramAgent, MultipleChoice, chooses(*letters), options) as harness:
        verdict, response = await harness.run(rows()[0])
    assert verdict.reward == reward
    assert [item["role"] for item in response["output"]] == ["assistant", "user", "assistant"]
    assert (verdict.fields["program_error"], verdict.fields["mask_sample"]) == (None, False)


async def test_a_rollout_is_continued_after_a_crash_at_any_call_and_pays_none_twice(bus: Any, run: str) -> None:
    options = {"command": "python example_program.py", "files": [EXAMPLE]}
    async with AgentHarness(ProgramAgent, MultipleChoice, chooses("A", "B"), options) as harness:
        expected, num_effects = await uninterrupted(harness, rows()[0])
        for at in range(1, num_effects):
            done = await with_a_crash(bus, run, harness, rows()[0], at, hears_last=True)
            assert (done.verdict.reward, done.response) == (1.0, expected.response)
            assert done.num_model_calls == expected.num_model_calls == 2


async def test_a_program_that_puts_its_folder_into_its_prompts_pays_none_twice_either(
    bus: Any, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = program(tmp_path, "ask(os.getcwd()); ask(os.environ['HOME']); ask(ask(os.getcwd()))")
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        expected, num_effects = await uninterrupted(harness, prompt("Where are you?"))
        for at in range(2, num_effects):
            done = await with_a_crash(bus, run, harness, prompt("Where are you?"), at, hears_last=True)
            assert done.num_model_calls == expected.num_model_calls == 4
            assert done.response == expected.response


async def test_the_prompt_is_on_standard_input_and_in_a_file(tmp_path: Path) -> None:
    text = "ask(sys.stdin.read() + '|' + open(os.environ['GYMQ_PROMPT_FILE']).read())"
    question = "What is the capital of Switzerland?"
    assert await asked_by(program(tmp_path, text)) == f"{question}|{question}"


async def test_only_the_fields_that_are_named_are_given(tmp_path: Path) -> None:
    text = "ask(os.environ['GYMQ_ROW'] + open(os.environ['GYMQ_ROW_FILE']).read())"
    row = {"answer": "Bern", "hint": "not Zurich", **prompt("Capital?")}
    assert await asked_by(program(tmp_path, text), row) == "{}{}"
    named = program(tmp_path, text) | {"row_fields": ["hint"]}
    assert await asked_by(named, row) == '{"hint":"not Zurich"}' * 2
    with pytest.raises(gymq.InvalidTask, match="no 'hint', which the option row_fields names"):
        await asked_by(named, prompt("Capital?"))


async def test_a_row_too_large_for_a_variable_is_in_the_file(tmp_path: Path) -> None:
    text = "ask(str('GYMQ_ROW' in os.environ) + str(len(json.load(open('row.json'))['text'])))"
    row = {"text": "x" * 300_000, **prompt("?")}
    assert await asked_by(program(tmp_path, text) | {"row_fields": ["text"]}, row) == "False300000"


async def test_the_environment_is_what_the_options_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_FOR_PROGRAMS", "secret")
    monkeypatch.setenv("PASSED_ON", "passed")
    text = "ask(' '.join(str(os.environ.get(n)) for n in ('NOT_FOR_PROGRAMS', 'PASSED_ON', 'MODE')))"
    options = program(tmp_path, text) | {"pass_env": ["PASSED_ON"], "env": {"MODE": "fast"}}
    assert await asked_by(options) == "None passed fast"


async def test_a_variable_to_pass_that_is_not_set_is_named() -> None:
    lacking = ProgramAgent({**REFERENCES, "command": "true", "pass_env": ["NOT_SET_ANYWHERE"]}, name="mine")
    with pytest.raises(gymq.OptionsError, match="mine: pass_env: NOT_SET_ANYWHERE is not set here"):
        await lacking.start()


async def test_words_of_a_command_are_no_script_of_the_shell(tmp_path: Path) -> None:
    options = program(tmp_path, "ask(' '.join(sys.argv[1:]))")
    hostile = "$HOME; touch gone `id` && *"
    assert await asked_by(options | {"command": ["python", "mine.py", hostile]}) == hostile
    assert await asked_by(options | {"command": "python mine.py '$HOME' $HOME"}) == "$HOME $HOME"
    assert await asked_by(options | {"command": "cd . && python mine.py $((1 + 1))", "shell": True}) == "2"


async def test_python_is_the_one_that_runs_gymq(tmp_path: Path) -> None:
    assert await asked_by(program(tmp_path, "ask(sys.executable)")) == sys.executable


async def test_each_rollout_has_a_folder_of_its_own_with_copies_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "words.txt").write_text("Bern")
    text = "ask(open('parts/words.txt').read() + str(os.path.exists('left'))); open('left', 'w').close()"
    options = program(tmp_path, text)
    options["files"].append(str(tmp_path / "parts"))
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        for _ in range(2):
            assert (await harness.run(prompt("?")))[0].fields["reply"] == "BernFalse"
    assert (tmp_path / "parts" / "words.txt").exists()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (["no_such_file.py"], "mine: files: no_such_file.py does not exist in "),
        ([EXAMPLE, EXAMPLE], "the name example_program.py is taken"),
    ],
)
async def test_files_that_cannot_be_copied_are_named_at_the_start(files: list[str], why: str) -> None:
    with pytest.raises(gymq.OptionsError, match=why):
        await ProgramAgent({**REFERENCES, "command": "true", "files": files}, name="mine").start()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "set either `command`"),
        ({"command": ""}, "name the program"),
        ({"command": []}, "name the program"),
        ({"command": "python 'mine.py"}, "close the quotation"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["a"], "shell": True}, "it is one text"),
        ({"command": "a", "runtime": "docker"}, "the runtime `docker` needs one"),
        ({"command": "a", "image": "python:3.13"}, "a process has no isolation"),
        ({"command": "a", "runtime": "sandbox"}, "runtime"),
        ({"command": "a", "env": {"A=B": "c"}}, "cannot be the name of an environment variable"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(gymq.OptionsError, match=why):
        ProgramAgent(REFERENCES | options)


async def failure(options: dict[str, Any]) -> gymq.RolloutError:
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        with pytest.raises(gymq.RolloutError) as failed:
            await harness.run(prompt("?"))
    assert failed.value.failure_class is gymq.FailureClass.AGENT_FAILED
    return failed.value


async def test_a_program_that_crashes_shows_its_status_and_its_last_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = program(tmp_path, "print('x' * 10**6, file=sys.stderr)\nimport no_such_module")
    with caplog.at_level(logging.WARNING, "gymq.agent"):
        message = (await failure(options)).message
    assert message.startswith("the program ended with status 1 without asking the model: ")
    assert message.endswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert len(message) < 2200
    assert "No module named 'no_such_module'" in caplog.text


async def test_a_program_that_crashes_after_it_asked_is_a_failure_and_no_reward(tmp_path: Path) -> None:
    failed = await failure(program(tmp_path, "ask('?'); sys.exit('out of ideas')"))
    assert failed.message == "the program ended with status 1 after 1 model calls: out of ideas"


async def test_a_program_that_is_killed_or_says_nothing_is_described(tmp_path: Path) -> None:
    killed = await failure(program(tmp_path, "os.kill(os.getpid(), 9)"))
    assert killed.message == "the program was ended by signal 9 without asking the model: it printed nothing"
    absent = await failure({"command": "no-such-program-anywhere"})
    assert "ended with status 127" in absent.message
    assert "no-such-program-anywhere" in absent.message


async def test_secrets_are_in_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", "k3y-of-a-search-engine-123")
    text = "sys.exit(os.environ['SEARCH_API_KEY'] + os.environ['OPENAI_API_KEY'])"
    failed = await failure(program(tmp_path, text) | {"pass_env": ["SEARCH_API_KEY"]})
    assert failed.message == "the program ended with status 1 without asking the model: ******"
    assert redact("k3y-of-a-search-engine-123") == "***"


class Impatient(Subprocess):
    """Says of the program that it was out of time."""

    limits_s: ClassVar[list[float]] = []

    async def run(self, script: str, *, wall_s: float, **more: Any) -> ProgramResult:
        ended = await super().run(script, wall_s=wall_s, **more)
        if "mine.py" not in script:
            return ended
        self.limits_s.append(wall_s)
        return replace(ended, exit_status=-9, limit="time")


async def test_a_program_out_of_time_is_verified_and_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramAgent, "_place", lambda agent, rollout: Impatient())
    options = program(tmp_path, "ask('so far'); print('waits for a lock')") | {"timeout_s": 300.5}
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        verdict, _ = await harness.run(prompt("?"))
    members = verdict.fields
    assert (members["reply"], members["program_error"], members["mask_sample"]) == ("so far", "timeout", True)
    assert members["last_output"] == "waits for a lock"
    assert Impatient.limits_s == [300.5]


async def test_a_program_that_hangs_is_ended_at_the_deadline_with_its_last_output() -> None:
    options = {"command": "echo waits for a lock; sleep 3600", "shell": True}
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        rollout = gymq.Rollout(
            harness,
            rollout_id="test/0/0",
            row=json.dumps(prompt("?")).encode(),
            options=harness.agent.options,
            deadline=asyncio.get_running_loop().time() + 6.0,
        )
        with pytest.raises(gymq.RolloutError, match=r"ended by its time limit after .* s: waits for a lock") as raised:
            await harness.agent.run(rollout)
    assert raised.value.failure_class is FailureClass.DEADLINE_EXCEEDED


async def test_a_program_without_calls_left_is_verified_and_masked(tmp_path: Path) -> None:
    options = program(tmp_path, "ask('first'); ask('second')") | {"max_turns": 1}
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        verdict, _ = await harness.run(prompt("?"))
    members = verdict.fields
    assert (members["reply"], members["program_error"], members["mask_sample"]) == ("first", "max_turns", True)


async def test_verification_can_be_left_out(tmp_path: Path) -> None:
    options = program(tmp_path, "ask('?')") | {"skip_verification": True, "skip_verification_reward": 0.5}
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        verdict, _ = await harness.run(prompt("?"))
    assert (verdict.reward, verdict.fields["verification_skipped"]) == (0.5, True)


async def test_a_container_that_cannot_be_started_is_a_failure_and_no_process() -> None:
    options = {"command": "true", "runtime": "apptainer", "image": "/no/such/image.sif"}
    async with AgentHarness(ProgramAgent, Echo, echo, options) as harness:
        with pytest.raises(gymq.ComponentFailed):
            await harness.run(prompt("?"))


async def test_a_program_runs_in_a_container(tmp_path: Path) -> None:
    needs_docker()
    options = program(tmp_path, "ask(sys.stdin.read() + os.getcwd())") | {
        "runtime": "docker",
        "image": "python:3.13-slim",
    }
    assert await asked_by(options, prompt("?")) == "?/tmp/gymq-program"
