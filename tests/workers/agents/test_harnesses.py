"""Coding agents by their names: real programs of npm, in containers and as processes; the model follows a script."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from gymq.workers.agents.harbor_agent.worker import HarborAgent
from gymq.workers.agents.program_agent import portable_python
from gymq.workers.agents.program_agent.harnesses import HARNESSES, HarnessName
from gymq.workers.agents.program_agent.installed_harness import FOLDER, install
from gymq.workers.agents.program_agent.worker import ProgramAgent
from gymq.workers.agents.swe_agents.worker import SweAgents

import gymq
from gymq.testing import function_call, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.compatibility import record
from tests.support.waiting import until

from .crashes import Done, uninterrupted, with_a_crash
from .shells import shell_call
from .swe import instance

ROOT = Path(__file__).parents[3]
NAME = "demo__words-3"
RANDOM_RESULTS = {"codex", "gemini_cli", "qwen_code"}
"""Those that put random numbers or process ids into results of tools, so that later calls are asked and paid again."""

T = TypeVar("T")
Model = Callable[[dict[str, Any]], dict[str, Any]]


class PatchSeen(gymq.Resources[gymq.Row]):
    """Reward 1 if the response ends with the patch that solves the task."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        patch = request.response["output"][-1].get("content")
        row: Any = request.row
        return gymq.Verdict(float(patch == row.patch), metadata={"eval_report": {}} if patch else None)


class AnythingSaid(gymq.Resources[gymq.Row]):
    """Reward 1 for any response."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(1.0)


def plays(*commands: str) -> Model:
    """A model that runs commands, one a turn, and then ends; a call without tools is one for a title."""

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        tools = {tool.get("name"): tool for tool in params.get("tools") or ()}
        turn = sum(item.get("type") == "function_call_output" for item in params["input"])
        if not tools:
            return reply("A title")
        if turn < len(commands):
            return reply(function_call(*shell_call(tools, commands[turn]), f"call_{turn}"))
        if "submit_and_exit" in tools and turn == len(commands):
            arguments = {"summary": "The repository is as asked.", "verified": True}
            return reply(function_call("submit_and_exit", arguments, f"call_{turn}"))
        return reply("Done.")

    def model(params: dict[str, Any]) -> dict[str, Any]:
        # Claude Code takes replies with the same id for parts of one.
        return answer(params) | {"id": f"resp_{len(params['input'])}"}

    return model


def solves(row: dict[str, Any]) -> Model:
    return plays("ls", f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH")


async def in_a_day(work: Callable[[], Awaitable[T]]) -> T:
    """What the work returns, done again if midnight came meanwhile: programs put the date into their prompts."""
    while True:
        days = today()
        done = await work()
        if today() == days:
            return done


def today() -> tuple[date, date]:
    """The date here, and in a container without a time zone."""
    return datetime.now().astimezone().date(), datetime.now(UTC).date()


@pytest.mark.parametrize("installed", sorted(HARNESSES), indirect=True)
async def test_a_real_program_earns_its_patch_once_paid_and_nothing_without_one(
    installed: HarnessName, bus: Any, run: str
) -> None:
    row = instance(NAME)

    async def both() -> tuple[Done, Done]:
        async with AgentHarness(SweAgents, PatchSeen, solves(row), {"harness": installed}) as harness:
            expected, _ = await uninterrupted(harness, row)
            return expected, await with_a_crash(bus, run, harness, row, 2, hears_last=True)

    expected, killed = await in_a_day(both)
    for done in (expected, killed):
        fields = done.verdict.fields
        assert (done.verdict.reward, fields["agent_error"], "branches" in fields) == (1.0, None, False)
        assert [item["type"] for item in done.response["output"]][:4] == ["function_call", "function_call_output"] * 2
        asked = json.dumps(fields["responses_create_params"]["input"], ensure_ascii=False)
        assert json.dumps(row["problem_statement"], ensure_ascii=False)[1:-1] in asked
    if installed not in RANDOM_RESULTS:
        assert killed.num_model_calls == expected.num_model_calls
    assert expected.num_model_calls <= 5
    async with AgentHarness(SweAgents, PatchSeen, plays("ls"), {"harness": installed}) as harness:
        verdict, _ = await harness.run(row)
    assert (verdict.reward, verdict.fields["patch_exists"]) == (0.0, False)
    result = "each: its patch 1, none 0, killed and resumed 1"
    versions = f"the {len(HARNESSES)} of [this table](agents.md#named-harnesses)"
    record("Coding agents by name: `swe_agents`", versions, "Docker, a scripted model", result)


@pytest.mark.parametrize("installed", ["claude_code", "pi"], indirect=True)
async def test_a_real_program_on_a_plain_row_as_a_process_is_killed_and_pays_no_call_twice(
    installed: HarnessName, bus: Any, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    row = {"responses_create_params": {"input": "Write a file in the shell."}}
    model = plays("pwd", "echo forty-two > file", "cat file")

    async def both() -> tuple[Done, Done]:
        async with AgentHarness(ProgramAgent, AnythingSaid, model, {"harness": installed}) as harness:
            expected, num_effects = await uninterrupted(harness, row)
            return expected, await with_a_crash(bus, run, harness, row, num_effects - 2, hears_last=True)

    expected, killed = await in_a_day(both)
    assert killed.num_model_calls == expected.num_model_calls
    assert killed.response["output"] == expected.response["output"]
    assert "forty-two" in json.dumps(killed.response["output"])


@pytest.mark.parametrize("installed", ["openhands", "pi"], indirect=True)
async def test_a_task_of_harbor_and_a_plain_row_take_the_same_name(installed: str) -> None:
    row = json.loads((ROOT / "workers/agents/harbor_agent/data/example.jsonl").read_text().splitlines()[0])
    alias = row["instance_id"].partition("::")[0]
    options = {"harness": installed, "harbor_datasets": {alias: {"local_dataset_path": str(ROOT / "examples/harbor")}}}
    async with AgentHarness(HarborAgent, PatchSeen, plays("ls"), options) as harness:
        verdict, response = await harness.run(row)
    assert (verdict.reward, [item["type"] for item in response["output"]][:2]) == (
        0.0,
        ["function_call", "function_call_output"],
    )

    class FileSeen(gymq.Resources[gymq.Row]):
        async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
            return gymq.Verdict(float("forty-two" in json.dumps(request.response["output"])))

    async with AgentHarness(
        ProgramAgent, FileSeen, plays("echo forty-$((1+1))two | tr -d 2"), {"harness": installed}
    ) as one:
        verdict, _ = await one.run({"responses_create_params": {"input": "Say forty-two in the shell."}})
    assert (verdict.reward, verdict.fields["program_error"]) == (1.0, None)


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in the place of npm, in a folder without anything installed."""

    def replace(script: str) -> None:
        (tmp_path / "bin").mkdir(exist_ok=True)
        file = tmp_path / "bin" / "npm"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return replace


async def test_what_midnight_interrupts_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [date(2026, 1, 1), *[date(2026, 1, 2)] * 3]
    monkeypatch.setattr(sys.modules[__name__], "today", lambda: (days.pop(0),))
    done = iter(["yesterday", "today"])

    async def work() -> str:
        return next(done)

    assert await in_a_day(work) == "today"


async def test_without_npm_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(gymq.OptionsError, match=r"pi comes from npm, which is not installed here; install Node\.js"):
        await install("pi")


async def test_a_package_that_cannot_be_had_costs_a_sentence(npm: Callable[[str], None]) -> None:
    npm("echo 'npm warn old lockfile' >&2; echo 'npm error network: no answer from the registry' >&2; exit 1")
    with pytest.raises(gymq.OptionsError, match=r"`npm install @openai/codex@.* failed: npm error network"):
        await install("codex")
    assert not folders()


async def test_the_error_of_an_installer_names_the_cure_and_no_password(npm: Callable[[str], None]) -> None:
    npm("echo 'npm error SELF_SIGNED_CERT_IN_CHAIN at https://me:pa55w0rd@packages/npm' >&2; exit 1")
    with pytest.raises(
        gymq.OptionsError, match=r"IN_CHAIN at https://\*\*\*@packages/npm; .*NODE_EXTRA_CA_CERTS"
    ) as caught:
        await install("codex")
    assert "pa55w0rd" not in str(caught.value)


async def test_packages_of_python_that_cannot_be_had_cost_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(portable_python, "MINIMUM", (3, 11))
    with pytest.raises(
        gymq.OptionsError, match=r"openhands: `pip install -r openhands\.txt` failed: .*agent-client-protocol"
    ):
        await install("openhands")
    monkeypatch.setattr(portable_python, "MINIMUM", (4, 0))
    with pytest.raises(
        gymq.OptionsError, match=r"openhands: it needs Python 4\.0 or later, which is not installed here"
    ):
        await install("openhands")
    assert not folders()


async def test_the_pinned_version_is_installed_once(npm: Callable[[str], None], tmp_path: Path) -> None:
    npm('echo "$@" >> calls.txt; echo "$3" > "$3/where"')
    first, second = await asyncio.gather(install("pi"), install("pi"))
    third = await install("pi")
    assert first.folder == second.folder == third.folder
    assert folders() == [first.folder.name]
    (call,) = (tmp_path / "calls.txt").read_text().splitlines()
    assert f"@mariozechner/pi-coding-agent@{HARNESSES['pi'].version}" in call


async def test_an_installation_ends_when_its_worker_is_stopped(npm: Callable[[str], None], tmp_path: Path) -> None:
    npm(SLOW_NPM)
    installing = asyncio.create_task(install("pi"))
    await until((tmp_path / "ready").exists)
    installing.cancel()
    await asyncio.wait([installing])
    await until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
    await until(lambda: not folders())


async def test_an_installation_ends_with_a_worker_that_is_killed_and_is_made_by_the_next(
    npm: Callable[[str], None], tmp_path: Path
) -> None:
    npm(SLOW_NPM)
    code = f"import asyncio; from {install.__module__} import install; asyncio.run(install('pi'))"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await until((tmp_path / "ready").exists)
    worker.kill()
    await worker.wait()
    await until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
    npm("true")
    await install("pi")
    assert folders() == [f"pi-{HARNESSES['pi'].version}"]


SLOW_NPM = "echo $$ > pid && touch ready && exec sleep 600"


def folders() -> list[str]:
    return [path.name for path in FOLDER.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        (ProgramAgent, {}),
        (ProgramAgent, {"command": "true", "harness": "pi"}),
        (SweAgents, {}),
        (SweAgents, {"agent_command": "true", "harness": "pi"}),
        (HarborAgent, {"harbor_datasets": {}, "agent_command": "true", "harness": "pi"}),
        (HarborAgent, {"harbor_datasets": {}}),
        (ProgramAgent, {"harness": "emacs"}),
    ],
)
def test_a_program_or_a_name_is_needed_and_not_both(agent: type[gymq.Agent], options: dict[str, Any]) -> None:
    references = {
        "model_server": {"type": "responses_api_models", "name": "model"},
        **({} if agent is HarborAgent else {"resources_server": {"type": "resources_servers", "name": "resources"}}),
    }
    with pytest.raises(gymq.OptionsError, match=r"harness"):
        agent({**references, **options})


def test_the_table_of_the_docs_has_every_harness() -> None:
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    for name, harness in HARNESSES.items():
        assert f"| `{name}` | `{harness.package}` | {harness.version} |" in text
