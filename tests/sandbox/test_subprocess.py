"""Trusted programs in a folder of this machine, and what they leave behind."""

import asyncio
import os
import tempfile
from pathlib import Path

import psutil
import pytest
import uvloop

from gymq.failures import ComponentFailed
from gymq.sandbox import MIB, Subprocess
from tests.support.owners import start_owner
from tests.support.waiting import DEADLINE_S, until

NAME = f"a run of {os.getpid()}/0/0"


async def test_a_program_that_takes_too_long_is_ended():
    async with Subprocess() as place:
        ended = await place.run("echo began; sleep 600", wall_s=5.0)
        assert (ended.limit, ended.stdout) == ("time", b"began\n")
        assert (await place.run("echo again", wall_s=30.0)).stdout == b"again\n"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_need_not_read_what_it_is_given(new_loop):
    async def ends():
        async with Subprocess() as place:
            with_input = await place.run("exec <&-; exit 3", wall_s=60.0, stdin=b"x" * 10**6)
            return with_input.exit_status, (await place.run("exit 4", wall_s=60.0)).exit_status

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(ends()) == (3, 4)


async def test_a_cancelled_program_is_gone_with_its_children(tmp_path):
    started = tmp_path / "pid"
    async with Subprocess() as place:
        running = asyncio.create_task(
            place.run(f"sleep 600 & echo $! > {started}.part; mv {started}.part {started}; wait", wall_s=600.0)
        )
        await until(started.exists)
        running.cancel()
        await asyncio.wait([running])
    await until(lambda: not psutil.pid_exists(int(started.read_text())))


@pytest.mark.parametrize("left", ["sleep 600", "setsid sleep 600", "trap '' TERM HUP; setsid setsid sleep 600"])
async def test_what_a_program_leaves_running_is_ended_with_it(tmp_path, left):
    noted = tmp_path / "pid"
    script = f"({left}) & echo $! > {noted}; echo done"
    async with Subprocess() as place:
        ended = await place.run(script, wall_s=300.0)
    assert (ended.exit_status, ended.limit, ended.stdout) == (0, None, b"done\n")
    assert not psutil.pid_exists(int(noted.read_text()))


async def test_a_program_that_kills_its_keeper_is_ended_too(tmp_path):
    noted = tmp_path / "pid"
    async with Subprocess() as place:
        ended = await place.run(f"echo $$ > {noted}; setsid sleep 600 & kill -KILL $PPID; sleep 600", wall_s=300.0)
    assert (ended.exit_status, ended.limit) == (-9, None)
    assert not psutil.pid_exists(int(noted.read_text()))


async def test_memory_of_all_that_a_process_starts_is_limited():
    script = "python3 -c 'x = bytearray(10**8); input()' < /dev/zero & " * 2
    async with Subprocess(memory_mib=150) as place:
        assert (await place.run(script + "wait", wall_s=300.0)).limit == "memory"
        assert (await place.run("echo lives", wall_s=300.0)).stdout == b"lives\n"


async def test_of_what_a_program_prints_without_end_the_beginning_is_kept():
    async with Subprocess() as place:
        ended = await place.run("head -c 100000000 /dev/zero", wall_s=300.0)
    assert (ended.exit_status, len(ended.stdout)) == (0, 16 * MIB)


async def test_programs_of_a_process_that_is_killed_end_and_the_next_one_removes_their_folder(tmp_path):
    driver, (pid, folder) = await start_owner(tmp_path, "(trap '' TERM; setsid sleep 600) &", "$! $PWD")
    driver.kill()
    await driver.wait()
    await until(lambda: not psutil.pid_exists(int(pid)))
    async with Subprocess():
        await until(lambda: not Path(folder).exists())


async def test_a_folder_whose_holder_lives_is_neither_shared_nor_emptied(caplog):
    async with Subprocess(name=NAME) as first:
        await first.write("work", b"of the first")
        async with Subprocess(name=NAME) as second:
            assert second.folder != first.folder
            assert f"{first.folder} is in use by another process; this attempt works in {second.folder}" in caplog.text
        assert (first.folder / "work").read_bytes() == b"of the first"


async def test_an_attempt_that_resumes_waits_for_the_one_before_to_end():
    first = Subprocess(name=NAME)
    await first.start()
    resuming = Subprocess(name=NAME, resumes=True)
    starting = asyncio.create_task(resuming.start())
    await asyncio.sleep(0)
    assert not starting.done()
    await first.stop()
    await starting
    assert resuming.folder == first.folder
    await resuming.stop()


async def test_a_killed_process_leaves_its_folder_to_the_next_once_its_programs_are_gone(tmp_path):
    driver, (pid, folder) = await start_owner(tmp_path, "(setsid sleep 600) & touch old;", "$! $PWD", f"name={NAME!r}")
    driver.kill()
    async with Subprocess(name=NAME, resumes=True) as place:
        assert not psutil.pid_exists(int(pid))
        assert str(place.folder) == folder
        assert list(place.folder.iterdir()) == []
        await driver.wait()
        assert place.folder.is_dir()


async def test_a_machine_without_room_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ComponentFailed, match=r"no folder for a program: .*No such file or directory: "):
        await Subprocess().start()


async def test_a_program_whose_start_is_cancelled_after_it_began_is_ended(monkeypatch):
    # As on a machine that is so busy that the program runs before this process has read that it was started.
    loop = asyncio.get_running_loop()
    cancelled = asyncio.Event()
    connect = loop.connect_read_pipe

    async def slowly(*args):
        await cancelled.wait()
        return await connect(*args)

    monkeypatch.setattr(loop, "connect_read_pipe", slowly)
    async with Subprocess() as place:
        running = asyncio.ensure_future(place.run("echo $$ > new; mv new pid; exec sleep 600", wall_s=600.0))
        noted = place.folder / "pid"
        await until(noted.exists)
        pid = int(noted.read_text())
        running.cancel()
        await asyncio.sleep(0)  # asyncio begins to undo the start
        cancelled.set()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([running])
        assert running.cancelled()
    assert not psutil.pid_exists(pid)
