"""Environments that block the event loop of their process, or end it: only the calls that do so fail."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gymq.bus.discovery import find_workers
from gymq.cluster.loop_watch import MOST_TICKS, TickReader
from gymq.execution import sessions
from gymq.failures import Place, innermost_of_author
from gymq.protocol.messages import Failure, FailureClass, Outcome, Stage, Unresolved, VerifiedRollout

from .running_cluster import WORKERS, row, small_cluster

MISBEHAVING = WORKERS / "misbehaving.py"


async def test_only_the_calls_that_block_the_loop_fail_and_the_process_lives(tmp_path: Path, run: str) -> None:
    def asked(**fields: Any) -> dict[str, Any]:
        return row(processes=str(tmp_path / "processes"), **fields)

    script = {"tools": ["add"]}
    rows = [asked(), asked(does="expression"), asked(does="loop"), asked(expected=1, script=script), asked()]
    async with small_cluster(tmp_path, MISBEHAVING) as cluster:
        await cluster.submit(run, "agent", rows)
        outcomes = await cluster.outcomes(run, len(rows))
        # After the failures: the calls run in the same process.
        await cluster.submit(f"{run}b", "agent", [asked()])
        await cluster.outcomes(f"{run}b", 1)
        assert cluster.child("resources").restarts == 0
        workers = await find_workers(cluster.bus)
    (blocked,) = {worker["endpoints"][0]["data"]["blocked"] for worker in workers if worker["name"] == "env"}
    assert blocked.startswith("env: ")
    by_row = [outcomes[number, 0] for number in range(len(rows))]
    assert [type(outcome) for outcome in by_row] == [VerifiedRollout, Unresolved, Unresolved, Failure, VerifiedRollout]
    check(by_row[1], Stage.VERIFY, "verify", 're.match(r"(a+)+$"')
    check(by_row[2], Stage.VERIFY, "verify", "while True:", "pass")
    check(by_row[3], Stage.TOOL, "add", "while True:", "time.sleep(0.01)")
    assert len(set((tmp_path / "processes").read_text().splitlines())) == 1


def check(outcome: Outcome, stage: Stage, function: str, *sources: str) -> None:
    assert isinstance(outcome, Failure | Unresolved)
    assert (outcome.failure_class, outcome.stage) == (FailureClass.VERIFIER_FAILED, stage)
    assert outcome.message.startswith(f"env: {function} blocked the event loop")
    place = re.search(rf"{re.escape(str(MISBEHAVING))}:(\d+)", outcome.message)
    assert place is not None
    assert any(source in MISBEHAVING.read_text().splitlines()[int(place[1]) - 1] for source in sources)
    assert "verify_in_process" in outcome.message


async def test_a_call_that_ends_its_process_three_times_is_refused_with_the_reason(
    tmp_path: Path, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row(processes=str(tmp_path / "processes"), does=does) for does in ("", "exit", "", "")]
    async with small_cluster(tmp_path, MISBEHAVING) as cluster:
        await cluster.submit(run, "agent", rows)
        outcomes = await cluster.outcomes(run, len(rows))
        assert cluster.child("resources").restarts == 3
    failed = outcomes.pop((1, 0))
    assert all(isinstance(outcome, VerifiedRollout) for outcome in outcomes.values())
    assert isinstance(failed, Unresolved)
    assert failed.failure_class is FailureClass.WORKER_LOST
    assert failed.message == (
        f"env: its process ended 3 times during a call for task 1, rollout 0 of run {run}, at last with exit status 3; "
        "the last lines of its log:\n  there is no licence"
    )
    ends = [record.message for record in caplog.records if record.message.startswith("resources (env) ended")]
    assert len(ends) == 3
    assert f"a call of env for task 1, rollout 0 of run {run} has ended it 3 times and is refused" in ends[2]


async def test_a_session_whose_process_crashes_three_times_is_refused_with_the_reason(tmp_path: Path, run: str) -> None:
    async with small_cluster(tmp_path, WORKERS / "crashing.py") as cluster:
        await cluster.submit(run, "agent", [row(), row(crashes=True), row()])
        outcomes = await cluster.outcomes(run, 3)
        assert cluster.child("resources").restarts == 3
    failed = outcomes.pop((1, 0))
    assert all(isinstance(outcome, VerifiedRollout) for outcome in outcomes.values())
    assert isinstance(failed, Failure)
    assert failed.failure_class is FailureClass.WORKER_LOST
    assert "at last with signal SIGSEGV" in failed.message
    assert "Fatal Python error: Segmentation fault" in failed.message


def test_what_handles_no_signal_is_killed_with_the_place_of_its_author() -> None:
    ticks: list[None] = []
    killed: list[Place] = []
    reader = TickReader(tick=lambda: ticks.append(None), end=killed.append)
    dump = f'''Timeout (0:00:01)!
Thread 0x00007f0000000002 (most recent call first):
  File "/tmp/other.py", line 1 in waits
Thread 0x00007f0000000001 (most recent call first):
  File "{asyncio.__file__}", line 3 in step
  File "/tmp/env.py", line 7 in verify
  File "{sessions.__file__}", line 5 in _verdict
  File "<frozen runpy>", line 198 in _run_module_as_main
'''

    def write(text: str) -> None:
        for line in text.splitlines(keepends=True):
            reader.read(line.encode())

    for _ in range(MOST_TICKS):
        write(dump)
    write("\0resumed\n")
    for _ in range(MOST_TICKS):
        write(dump)
    assert (len(ticks), killed) == (2 * MOST_TICKS, [])
    write(dump)
    assert killed == [Place("/tmp/env.py", 7, "verify")]


def test_gymqs_own_code_is_never_blamed() -> None:
    stack = [Place(json.__file__, 1, "loads"), Place(sessions.__file__, 5, "_verdict"), Place("/tmp/env.py", 7, "main")]
    assert innermost_of_author(stack) is None
