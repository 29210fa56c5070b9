"""Computations in processes: always an answer, never longer than allowed, nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymq.processes import ComputeLimits, CpuTimeUsedUp, KillableProcesses
from tests.support.waiting import DEADLINE_S, until

AUTHORS = Path(__file__).parents[1] / "support" / "authors"

OWNER = """
import asyncio, sys
from gymq.processes import KillableProcesses
import process_authors

async def main():
    await KillableProcesses(1).run(3600, process_authors.write_pid_and_loop, sys.argv[1])

asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it is reaped while it is read
        return False


async def test_a_result_comes_back(processes: KillableProcesses, authors: Any) -> None:
    assert await processes.run(20, authors.add, 1, two=2) == 3
    assert await processes.run(20, authors.pid) != os.getpid()


async def test_no_more_processes_than_allowed_are_used(processes: KillableProcesses, authors: Any) -> None:
    pids = await asyncio.gather(*(processes.run(20, authors.wait_and_give_pid, 0.05) for _ in range(8)))
    assert len(set(pids)) <= 2


async def test_waiting_for_a_free_process_does_not_count(authors: Any) -> None:
    pool = KillableProcesses(1)
    try:
        await asyncio.gather(*(pool.run(1.0, authors.wait_and_give_pid, 0.4) for _ in range(5)))
    finally:
        pool.close()


@pytest.mark.parametrize("deed", ["loop_for_ever", "sleep_for_ever", "ignore_signals_and_loop"])
async def test_what_takes_too_long_is_killed(processes: KillableProcesses, authors: Any, deed: str) -> None:
    with pytest.raises(TimeoutError):
        await processes.run(0.3, getattr(authors, deed))
    assert await processes.run(20, authors.add, 1, 2) == 3


@pytest.mark.parametrize("deed", ["exit_process", "kill_process", "segfault"])
async def test_a_process_that_dies_is_an_error_and_is_replaced(
    processes: KillableProcesses, authors: Any, deed: str
) -> None:
    with pytest.raises(ChildProcessError, match="the process ended with exit code"):
        await processes.run(20, getattr(authors, deed))
    assert await processes.run(20, authors.add, 1, 2) == 3


async def test_processes_that_die_while_they_have_nothing_to_do_are_replaced(authors: Any) -> None:
    pool = KillableProcesses(2)
    try:
        idle = {await pool.run(20, authors.wait_and_give_pid, 0.05) for _ in range(8)}
        for pid in idle:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(is_alive(pid) for pid in idle))
        assert await asyncio.gather(*(pool.run(20, authors.add, 1, number) for number in range(8))) == list(range(1, 9))
    finally:
        await asyncio.to_thread(pool.close)


async def test_a_process_that_dies_while_it_sends_holds_up_no_other(authors: Any) -> None:
    pool = KillableProcesses(2)
    try:
        async with asyncio.timeout(DEADLINE_S):
            beside = asyncio.create_task(pool.run(3600, authors.wait_and_give_pid, 0.5))
            with pytest.raises(ChildProcessError, match="exit code -9"):
                await pool.run(20, authors.die_while_sending)
            assert await asyncio.gather(*(pool.run(20, authors.add, 1, number) for number in range(4))) == [1, 2, 3, 4]
            assert await beside != os.getpid()
    finally:
        await asyncio.to_thread(pool.close)


async def test_processes_that_cannot_begin_are_an_error(authors: Any) -> None:
    pool = KillableProcesses(1, prepare=authors.exit_process)
    try:
        with pytest.raises(ChildProcessError, match="died 3 times before they computed anything"):
            await pool.run(20, authors.add, 1, 2)
    finally:
        await asyncio.to_thread(pool.close)


@pytest.mark.parametrize(
    ("deed", "kind", "text"),
    [
        ("raise_without_pickle", RuntimeError, "NoPickle: x"),
        ("raise_without_unpickle", RuntimeError, "NoUnpickle: needs two"),
        ("recurse", RecursionError, "maximum recursion depth"),
        ("leave", ChildProcessError, "the process exited with status 3"),
    ],
)
async def test_an_error_that_cannot_travel_is_an_error_all_the_same(
    processes: KillableProcesses, authors: Any, deed: str, kind: type[Exception], text: str
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(kind, match=text):
            await processes.run(20, getattr(authors, deed))
        assert await processes.run(20, authors.add, 1, 2) == 3


async def test_an_error_of_the_function_is_raised_here(processes: KillableProcesses, authors: Any) -> None:
    with pytest.raises(ValueError, match="wrong value"):
        await processes.run(20, authors.raise_value_error)


@pytest.mark.parametrize("argument", [threading.Lock(), (one for one in "")])
async def test_an_argument_that_cannot_travel_is_an_error(
    processes: KillableProcesses, authors: Any, argument: Any
) -> None:
    with pytest.raises(Exception, match=r"(?i)pickle|local object"):
        await asyncio.wait_for(processes.run(20, authors.add, 1, argument), DEADLINE_S)
    assert await asyncio.wait_for(processes.run(20, authors.add, 1, 2), DEADLINE_S) == 3


async def test_a_function_that_a_process_cannot_find_is_an_error(
    processes: KillableProcesses, authors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = types.ModuleType("nowhere")
    exec("def function(): return 1", nowhere.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere", nowhere)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(Exception, match="nowhere"):
            await processes.run(20, nowhere.function)
        assert await processes.run(20, authors.add, 1, 2) == 3


async def test_what_nobody_waits_for_is_killed(processes: KillableProcesses, authors: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    running = asyncio.create_task(processes.run(3600, authors.write_pid_and_loop, str(pid_file)))
    await until(lambda: pid_file.exists() and pid_file.read_text())
    running.cancel()
    await until(lambda: not is_alive(int(pid_file.read_text())))


async def test_closing_kills_what_runs(authors: Any, tmp_path: Path) -> None:
    pool = KillableProcesses(1)
    pid_file = tmp_path / "pid"
    running = asyncio.create_task(pool.run(3600, authors.write_pid_and_loop, str(pid_file)))
    await until(lambda: pid_file.exists() and pid_file.read_text())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(pool.close)
    assert not is_alive(int(pid_file.read_text()))
    await asyncio.wait([running], timeout=DEADLINE_S)
    assert running.cancelled()


async def test_each_process_is_prepared_first(authors: Any) -> None:
    pool = KillableProcesses(1, prepare=authors.prepare)
    try:
        assert await pool.run(20, authors.prepared) == "yes"
    finally:
        pool.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    pid_file = tmp_path / "pid"
    environment = os.environ | {"PYTHONPATH": str(AUTHORS)}
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(pid_file)], env=environment)
    yield process, pid_file
    process.kill()
    process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_what_computes_ends_with_the_process_that_asked_for_it(
    owner: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, pid_file = owner
    await until(lambda: pid_file.exists() and pid_file.read_text())
    assert is_alive(int(pid_file.read_text()))
    process.kill()
    await until(lambda: not is_alive(int(pid_file.read_text())))


def test_nothing_is_imported_from_the_folder_that_a_program_is_run_in(tmp_path: Path) -> None:
    for name in ("socket", "sitecustomize", "numpy", "pickle"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w').close()\n")
    program = tmp_path / "elsewhere" / "program.py"
    program.parent.mkdir()
    program.write_text(
        "import asyncio\nfrom gymq.processes import KillableProcesses\npool = KillableProcesses(1)\n"
        "print(asyncio.run(pool.run(60, divmod, 7, 2)))\npool.close()\n"
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, (tmp_path / "run").exists()) == ("(3, 1)\n", False), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit")
async def test_a_computation_that_takes_too_much_memory_fails_alone(authors: Any) -> None:
    pool = KillableProcesses(1, max_memory_bytes=2**30)
    try:
        with pytest.raises(MemoryError):
            await pool.run(60, authors.take_memory, 2**30)
        assert await pool.run(60, authors.take_memory, 2**20) == 2**20
    finally:
        pool.close()


@pytest.fixture(scope="module")
def limited(authors: Any) -> Iterator[KillableProcesses]:
    """One process, and a second of processor time for each computation: with what it has used, a whole one."""
    pool = KillableProcesses(1, cpu_s=0.9)
    yield pool
    pool.close()


@pytest.mark.parametrize("deed", ["loop_for_ever", "ignore_signals_and_loop"])
async def test_what_uses_up_its_processor_time_is_killed(limited: KillableProcesses, authors: Any, deed: str) -> None:
    with pytest.raises(CpuTimeUsedUp, match=r"0\.9 s"):
        await limited.run(300, getattr(authors, deed))
    assert await limited.run(60, authors.add, 1, 2) == 3


async def test_time_in_which_it_does_not_compute_is_not_its_processor_time(
    limited: KillableProcesses, authors: Any
) -> None:
    assert await limited.run(60, authors.wait_and_give_pid, 2.5) != os.getpid()


async def test_each_computation_has_processor_time_of_its_own(limited: KillableProcesses, authors: Any) -> None:
    pids = [await limited.run(60, authors.compute_and_give_pid, 0.6) for _ in range(2)]
    assert len(set(pids)) == 1


async def test_waiting_too_long_is_no_matter_of_processor_time(limited: KillableProcesses, authors: Any) -> None:
    with pytest.raises(TimeoutError):
        await limited.run(0.5, authors.sleep_for_ever)


async def test_limits_have_processes_of_their_own_that_end_with_the_pool(authors: Any) -> None:
    pool = KillableProcesses(1)
    limits = ComputeLimits(cpu_s=0.9, timeout_s=300.0, prepare=authors.prepare, max_workers=1)
    try:
        with pytest.raises(CpuTimeUsedUp):
            await pool.compute(limits, authors.loop_for_ever)
        assert await pool.compute(limits, authors.prepared) == "yes"
        assert await pool.run(60, authors.prepared) is None
        pid = await pool.compute(replace(limits, timeout_s=200.0), authors.pid)
        assert pid == await pool.compute(limits, authors.pid)
    finally:
        pool.close()
    await until(lambda: not is_alive(pid))
