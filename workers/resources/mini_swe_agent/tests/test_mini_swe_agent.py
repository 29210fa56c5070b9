import asyncio
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest
from gymq.workers.resources.mini_swe_agent import harness
from gymq.workers.resources.mini_swe_agent.worker import MiniSwe, find_patch, reward_of, some_skipped, without_tests

import gymq
from gymq.testing import Harness, prompt, reply
from tests.support.waiting import until

MOCK = Path(__file__).with_name("swebench_mock.py")
NAME = "demo__shapes-7"
ROW = {**prompt("Repair it."), "instance_id": NAME, "FAIL_TO_PASS": ["t::b"], "PASS_TO_PASS": ["t::a"]}


@pytest.fixture
def swebench(monkeypatch):
    monkeypatch.setattr(harness, "COMMAND", (sys.executable, str(MOCK)))
    monkeypatch.setattr(harness, "MODULE", "json")


def patch_that(does):
    return f"diff --git a/shapes.py b/shapes.py\n--- a/shapes.py\n+++ b/shapes.py\n@@ -1 +1 @@\n-wrong\n+{does}\n"


@pytest.mark.usefixtures("swebench")
@pytest.mark.parametrize(
    ("does", "reward"), [("right", 1.0), ("wrong again", 0.0), ("does not apply", 0.0), ("slow", 0.0)]
)
async def test_the_harness_decides(does, reward):
    async with Harness(MiniSwe) as env:
        verdict = await env.verify(ROW, reply("THOUGHT: done", patch_that(does)))
    assert verdict.reward == reward
    assert verdict.fields["instance_id"] == NAME
    assert verdict.fields["timed_out"] == (does == "slow")


@pytest.mark.usefixtures("swebench")
async def test_the_report_comes_back():
    async with Harness(MiniSwe) as env:
        verdict = await env.verify(ROW, reply(patch_that("right")))
    status = verdict.fields["metadata"]["eval_report"][NAME]["tests_status"]
    assert status["FAIL_TO_PASS"] == {"success": ["t::b"], "failure": []}


@pytest.mark.usefixtures("swebench")
@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("no docker", "cannot connect to the Docker daemon"),
        ("crash", "the container is gone"),
        ("disk full", "has a fault"),
        ("garbled", "cannot be read"),
    ],
)
async def test_a_harness_that_cannot_run_the_tests_is_a_failure_and_no_zero(does, reason):
    async with Harness(MiniSwe) as env:
        with pytest.raises(gymq.ComponentFailed, match=reason):
            await env.verify(ROW, reply(patch_that(does)))


@pytest.mark.usefixtures("swebench")
async def test_a_harness_that_does_not_end_is_killed_and_no_zero(monkeypatch):
    monkeypatch.setattr(harness, "SETUP_S", 0.0)
    async with Harness(MiniSwe, {"eval_timeout": 1}) as env:
        with pytest.raises(gymq.ComponentFailed, match="did not end within 1 s"):
            await env.verify(ROW, reply(patch_that("hang")))


@pytest.mark.usefixtures("swebench")
async def test_an_evaluation_that_is_cancelled_leaves_no_process_and_no_container(monkeypatch, tmp_path):
    docker, calls = tmp_path / "docker", tmp_path / "docker.calls"
    docker.write_text("""#!/bin/sh\necho "$@" >> "$0.calls"\n[ "$1" != ps ] || echo c0ffee\n""")
    docker.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    evaluation = asyncio.create_task(harness.Harness(10, 1).evaluate(ROW, patch_that("hang")))
    await until(lambda: any(log.read_text().endswith("\n") for log in tmp_path.glob("**/run_instance.log")))
    (folder,) = tmp_path.glob("gymq-swe-*")
    (process,) = (int(log.read_text()) for log in folder.glob("**/run_instance.log"))
    evaluation.cancel()
    await asyncio.wait([evaluation])
    assert evaluation.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    listed, removed = calls.read_text().splitlines()
    assert listed == f"ps --all --quiet --filter name={folder.name}"
    assert removed == "rm --force --volumes c0ffee"


async def test_a_harness_that_is_not_installed_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(gymq.ComponentFailed, match="pip install swebench"):
        await harness.Harness(10, 1).evaluate(ROW, patch_that("right"))


@pytest.mark.parametrize("name", ["../../../../elsewhere", "/elsewhere", "a/../../b", "a\0b"])
async def test_the_harness_writes_into_no_folder_that_a_row_names(name):
    async with Harness(MiniSwe) as env:
        with pytest.raises(gymq.RolloutError, match="instance_id"):
            await env.verify({**ROW, "instance_id": name}, reply(patch_that("right")))


async def test_an_episode_without_a_patch_is_worth_nothing_and_needs_no_harness():
    async with Harness(MiniSwe) as env:
        for response in (reply(), reply(""), reply("I give up.")):
            assert (await env.verify(ROW, response)).reward == 0.0


@pytest.mark.usefixtures("swebench")
async def test_evaluations_wait_for_their_turn(monkeypatch):
    running, most = 0, 0
    run = harness.Harness._run

    async def counted(self, *arguments):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await run(self, *arguments)
        finally:
            running -= 1

    monkeypatch.setattr(harness.Harness, "_run", counted)
    async with Harness(MiniSwe, {"concurrency": 2}) as env:
        verdicts = await asyncio.gather(*(env.verify(ROW, reply(patch_that("right"))) for _ in range(4)))
    assert [verdict.reward for verdict in verdicts] == [1.0] * 4
    assert most == 2


DIFF = patch_that("right")


@pytest.mark.parametrize(
    ("response", "patch"),
    [
        (reply(DIFF), DIFF),
        (reply(f"Here it is:\n```diff\n{DIFF}```\nThat is all."), DIFF),
        (reply(f"  diff --git of mine:\n{DIFF}\n\n"), DIFF),
        (reply(DIFF, "It was wrong, forget it."), ""),
        (reply("x", {"type": "message", "role": "user", "content": DIFF}), DIFF),
        (reply(DIFF, {"type": "reasoning", "id": "rs_1", "summary": []}), DIFF),
        (reply({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": DIFF}]}), ""),
        (reply(), ""),
    ],
)
def test_where_the_patch_is(response, patch):
    assert find_patch(response) == patch


def entry(resolved=True, **status):
    return {"resolved": resolved, "tests_status": status}


ONE = {"success": ["t"], "failure": []}


@pytest.mark.parametrize(
    ("found", "reward"),
    [
        (entry(FAIL_TO_PASS=ONE, PASS_TO_PASS=ONE), 1.0),
        (entry(FAIL_TO_PASS=ONE), 1.0),
        (entry(PASS_TO_PASS={"success": ["t"]}), 1.0),
        (entry(FAIL_TO_PASS={"success": [], "failure": ["t"]}), 1.0),  # the harness's flag decides
        (entry(False, FAIL_TO_PASS=ONE), 0.0),
        (entry("true", FAIL_TO_PASS=ONE), 0.0),
        (entry(FAIL_TO_PASS={"success": [], "failure": []}), 0.0),
        (entry(FAIL_TO_PASS={"success": None}, PASS_TO_PASS=ONE), 0.0),
        (entry(FAIL_TO_PASS={"success": "t"}, PASS_TO_PASS=ONE), 0.0),
        (entry(FAIL_TO_PASS=None, PASS_TO_PASS=ONE), 0.0),
        (entry(), 0.0),
        ({"tests_status": {"FAIL_TO_PASS": ONE}}, 0.0),
        ({"resolved": True, "tests_status": None}, 0.0),
        ({"resolved": True}, 0.0),
        (None, 0.0),
    ],
)
def test_what_a_report_is_worth(found, reward):
    assert reward_of({"eval_report": {NAME: found}}, NAME) == reward


@pytest.mark.parametrize("report", [None, {}, [], {"eval_report": None}, {"eval_report": {}}, {"eval_report": []}])
def test_a_report_without_the_instance_is_worth_nothing(report):
    assert reward_of(report, NAME) == 0.0


@pytest.mark.parametrize(
    ("tests", "wanted", "skipped"),
    [
        (entry(FAIL_TO_PASS=ONE), ["t"], False),
        (entry(FAIL_TO_PASS=ONE), ["t", "u"], True),
        (entry(FAIL_TO_PASS=ONE), '["t", "u"]', True),
        (entry(FAIL_TO_PASS={"success": ["t"], "failure": ["u"]}), ["t", "u"], False),
        (entry(FAIL_TO_PASS={"success": [], "failure": []}, PASS_TO_PASS=ONE), ["t"], True),
        (entry(PASS_TO_PASS=ONE), [], False),
        (entry(PASS_TO_PASS=ONE), None, False),
        (entry(PASS_TO_PASS=ONE), "[", False),
    ],
)
def test_whether_a_test_was_skipped(tests, wanted, skipped):
    assert some_skipped({"eval_report": {NAME: tests}}, NAME, wanted) is skipped


@pytest.mark.usefixtures("swebench")
async def test_a_patch_that_has_the_tests_skipped_is_no_repair():
    async with Harness(MiniSwe) as env:
        verdict = await env.verify(ROW, reply(patch_that("right but skips")))
    assert verdict.fields["metadata"]["eval_report"][NAME]["resolved"] is True
    assert verdict.reward == 0.0


def new_file(path, header=""):
    return (
        f"diff --git a/{path} b/{path}\n{header}new file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    )


HIDDEN = {
    "quoted": "diff --git a/x b/x\n" + r'+++ "b/c\157nftest.py"' + "\n@@ -0,0 +1 @@\n+x\n",
    "context": "diff --git a/x b/x\n*** a/conftest.py\n--- b/x\n***************\n",
    "with a date": "diff --git a/x b/x\n--- a/x\n+++ b/conftest.py 2026-01-01\n@@ -0,0 +1 @@\n+x\n",
    "another name": "diff --git a/x.py b/x.py\n--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+x\n",
    "renamed": "diff --git a/x.py b/x.py\nrename from x.py\nrename to conftest.py\n",
    "after a hunk": patch_that("right") + "--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+x\n",
    "no prefix": "diff --git conftest.py conftest.py\n--- /dev/null\n+++ conftest.py\n@@ -0,0 +1 @@\n+x\n",
}


@pytest.mark.parametrize("path", ["conftest.py", "a/pytest.toml", "tests/test_a.py", "setup.cfg", "sitecustomize.py"])
def test_files_of_tests_are_left_out_of_a_patch_unless_the_reference_changes_them(path):
    repair, more = patch_that("right"), new_file("docs/notes on conftest.txt") + "--- tests are slow\n"
    assert without_tests(new_file(path) + repair + more, repair) == repair + more
    assert without_tests(new_file(path) + repair, new_file(path)) == new_file(path) + repair


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_a_file_of_tests_is_found_however_it_is_written(hidden):
    repair = patch_that("right")
    assert without_tests(hidden + repair, "") == repair
    assert without_tests('diff --git "a/\\x "b/\\', "") == 'diff --git "a/\\x "b/\\'


@pytest.mark.usefixtures("swebench")
@pytest.mark.parametrize(("hardened", "reward"), [(True, 0.0), (False, 1.0)])
async def test_a_patch_changes_not_how_tests_are_run(hardened, reward):
    async with Harness(MiniSwe, {"hardened": hardened}) as env:
        verdict = await env.verify(ROW, reply(new_file("conftest.py", "right\n")))
    assert verdict.reward == reward
