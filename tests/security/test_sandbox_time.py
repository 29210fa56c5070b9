"""Neighbours cost a program time on the clock, and never its verdict."""

from __future__ import annotations

import asyncio
import os
import time
from types import SimpleNamespace
from typing import cast

import pytest

from gymq.failures import ComponentFailed
from gymq.sandbox import GIB, Limits, LocalSandbox, Program, ProgramResult, PythonSession, local
from gymq.sandbox.inside import own_time, supervisor
from gymq.sandbox.inside.spec import Spec
from tests.sandbox.conftest import PROCESS_AT_NIGHT, alive, run_python, sandbox

__all__ = ["sandbox"]

# Each in a session, and so in a scheduling group, of its own: enough that a program takes four times its time, and few
# enough that the tests beside, which share one group, go on.
NUM_NEIGHBOURS = min(16, 3 * (os.cpu_count() or 1))
HOSTILE = (
    f"import os\nfor _ in range({NUM_NEIGHBOURS - 1}):\n    if os.fork() == 0: os.setsid(); break\n"
    "while True: pass  # {marker}"
)
COMPUTING = "import time\nwhile time.process_time() < 0.5: pass\nprint('done')"
STEP = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.5: pass"


def stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def computed(marker: str) -> dict[int, int]:
    """Computing, in ticks, of each process with the marker."""
    return {pid: int(stat(pid)[11]) + int(stat(pid)[12]) for pid in alive(marker)}


def are_stopped(marker: str) -> bool:
    return [stat(pid)[0] for pid in alive(marker)] == ["T"] * 3


async def all_stopped(marker: str) -> dict[int, int]:
    """As `computed`, when all three processes with the marker are stopped."""
    for _ in range(1200):
        if are_stopped(marker):
            return computed(marker)
        await asyncio.sleep(0.05)
    raise AssertionError([stat(pid)[0] for pid in alive(marker)])


async def started(marker: str, hostile: asyncio.Task[ProgramResult]) -> None:
    """Wait until all processes with the marker run."""
    for _ in range(1200):
        if len(alive(marker)) >= NUM_NEIGHBOURS:
            return
        assert not hostile.done(), hostile.result()
        await asyncio.sleep(0.05)
    raise AssertionError("the neighbours did not start")


@PROCESS_AT_NIGHT
async def test_a_program_beside_many_has_its_time(sandbox: LocalSandbox):
    marker = f"neighbour-{os.getpid()}-{time.monotonic_ns()}"
    assert sandbox._isolation is not None
    beside = LocalSandbox(2, sandbox._isolation.name, sandbox.python)
    await beside.start()
    hostile = asyncio.create_task(run_python(beside, HOSTILE.format(marker=marker), Limits(time_s=600.0)))
    try:
        await started(marker, hostile)
        finished = await run_python(sandbox, COMPUTING, Limits(time_s=1.5))
        assert (finished.limit, finished.stdout) == (None, b"done\n")
    finally:
        hostile.cancel()
        await asyncio.gather(hostile, return_exceptions=True)


@PROCESS_AT_NIGHT
async def test_computing_of_all_processes_together_counts(sandbox: LocalSandbox):
    code = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        while time.process_time() < 0.35: pass\n"
        "        os._exit(0)\n    os.wait()\nprint('done')"
    )
    assert (await run_python(sandbox, code, Limits(time_s=0.7))).limit == "time"
    assert (await run_python(sandbox, code, Limits(time_s=20.0))).stdout == b"done\n"


async def test_nothing_of_a_session_computes_between_its_steps(sandbox: LocalSandbox):
    marker = f"between-{os.getpid()}-{time.monotonic_ns()}"
    code = (
        f"import os, subprocess, sys\nloop = 'while True: pass  # {marker}'\n"
        "for new in (True, False, True): subprocess.Popen([sys.executable, '-I', '-c', loop], start_new_session=new)"
    )
    session, other = PythonSession(sandbox, Limits()), PythonSession(sandbox, Limits())
    assert (await session.run(code, 60)).success
    stopped = await all_stopped(marker)
    assert (await other.run("sum(range(10**6))", 60)).success
    assert are_stopped(marker)
    # A process that a busy machine interrupted on its way into the stop counts a tick more when it arrives.
    assert all(ticks - stopped[pid] <= 1 for pid, ticks in computed(marker).items())
    assert (await session.run("import time\ntime.sleep(0.5)", 60)).success
    assert sum((await all_stopped(marker)).values()) > sum(stopped.values())
    await session.close()
    await other.close()


@pytest.mark.nightly
@PROCESS_AT_NIGHT
async def test_a_step_has_its_time_beside_many(sandbox: LocalSandbox):
    marker = f"beside-{os.getpid()}-{time.monotonic_ns()}"
    hostile = asyncio.create_task(run_python(sandbox, HOSTILE.format(marker=marker), Limits(time_s=600.0)))
    session = PythonSession(sandbox, Limits())
    try:
        await started(marker, hostile)
        step = await session.run(
            "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.5: pass", 1.5
        )
        assert step.success, step
    finally:
        hostile.cancel()
        await asyncio.gather(hostile, return_exceptions=True)
        await session.close()


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(1000)"])
async def test_a_step_that_uses_up_its_time_is_told_so_and_keeps_its_names(sandbox: LocalSandbox, code: str):
    session = PythonSession(sandbox, Limits())
    await session.run("x = 3", 60)
    step = await session.run(code, 1.0)
    assert (step.timed_out, step.names_lost) == (True, False)
    assert (await session.run("x", 60)).result == "3"
    await session.close()


async def test_a_machine_that_is_too_busy_gives_no_verdict(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "clock_s", lambda time_s: 0.5)
    with pytest.raises(ComponentFailed, match="too busy"):
        await sandbox.run(Program((sandbox.python, "-I", "-c", "import time; time.sleep(1000)")), Limits(time_s=60.0))


async def test_time_in_which_the_machine_stood_still_is_not_the_programs():
    sleeping = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        time_of_its_own = own_time.OwnTime(None)
        await asyncio.sleep(0.5)
        time_of_its_own.look([sleeping.pid], 1000.0)
        assert time_of_its_own.seconds < 0.5
        await asyncio.sleep(0.5)
        time_of_its_own.look([sleeping.pid], 0.0)
        assert time_of_its_own.seconds > 0.25
    finally:
        sleeping.kill()
        await sleeping.wait()


@pytest.mark.parametrize("disk_s", [0.0, 1000.0])
def test_at_the_limit_on_the_clock_a_program_that_waited_for_a_disk_has_used_up_its_time(
    monkeypatch: pytest.MonkeyPatch, disk_s: float
):
    own = SimpleNamespace(seconds=0.1, disk_s=disk_s, look=lambda everybody, late_s: None)
    monkeypatch.setattr(supervisor, "OwnTime", lambda group: own)
    spec = SimpleNamespace(time_s=0.5, clock_s=1.0, memory_bytes=GIB, disk_bytes=GIB, disk_files=10**9, own_view=True)
    spec.folders = {}
    watch = supervisor._Watch(cast(Spec, spec), 0, 0, 0, None)
    watch._begun -= 2.0
    if disk_s:
        assert watch._look(0.0) == "time"
    else:
        with pytest.raises(TimeoutError, match="too busy"):
            watch._look(0.0)
