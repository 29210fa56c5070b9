"""Limits count what a program may hold: files and kinds of sockets. Memory is that of `tests/sandbox/battery.py`."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from gymq.sandbox import MIB, Limits, LocalSandbox, PythonSession, Subprocess
from tests.sandbox.conftest import PROCESS_AT_NIGHT, run_python, sandbox

__all__ = ["sandbox"]

LIMITS = Limits(time_s=60.0, memory_bytes=128 * MIB, disk_bytes=32 * MIB, processes=8)


async def test_files_are_copied_and_sent_all_the_same(sandbox: LocalSandbox):
    code = """
import asyncio, shutil, socket, subprocess
open('x', 'wb').write(bytes(300_000))
shutil.copyfile('x', 'y')
subprocess.run(['cp', 'y', 'z'], check=True)
async def main():
    got, given = socket.socketpair()
    got.setblocking(False), given.setblocking(False)
    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(loop.sock_sendfile(given, open('z', 'rb')))
    left = 300_000
    while left: left -= len(await loop.sock_recv(got, left))
    print(await sending)
asyncio.run(main())
"""
    assert (await run_python(sandbox, code)).stdout == b"300000\n"


@PROCESS_AT_NIGHT
async def test_files_without_content_are_limited(sandbox: LocalSandbox):
    code = "import os\nfor n in range(60_000): os.mkdir(f'd{n}')\nprint('all')"
    finished = await run_python(sandbox, code, LIMITS)
    assert finished.limit == "disk" or (b"No space left" in finished.stderr and b"all" not in finished.stdout)


@PROCESS_AT_NIGHT
async def test_files_that_are_written_faster_than_they_are_counted_are_limited(sandbox: LocalSandbox):
    code = "import os\nfor n in range(25_000): os.mkdir(f'd{n}')"
    finished = await run_python(sandbox, code, LIMITS)
    assert finished.limit == "disk" or b"No space left" in finished.stderr


async def test_sockets_are_those_of_a_process_or_of_a_network_of_its_own(sandbox: LocalSandbox):
    code = (
        "import itertools, socket\nways = (socket.socket, socket.socketpair)\n"
        "for family, kind, make in itertools.product(range(1, 60), range(1, 11), ways):\n"
        "    try: make(family, kind, 0)\n    except OSError: continue\n    print(family, make.__name__)\n"
    )
    made = {tuple(line.split()) for line in (await run_python(sandbox, code)).stdout.decode().splitlines()}
    networks = {("1", "socket"), ("2", "socket"), ("10", "socket")}
    assert made <= {("1", "socketpair")} | (set() if sandbox.describe().startswith("process") else networks)
    assert ("1", "socketpair") in made


async def test_by_its_files_a_program_makes_nobody_wait_and_signals_nobody(sandbox: LocalSandbox):
    # A lease stops all others that open the file. Signals of a socket go to any process of the user.
    code = (
        "import fcntl, os, socket, struct\nfile, ends = open('x', 'w'), socket.socketpair()\n"
        "parent = struct.pack('i', os.getppid())\n"
        "ways = {\n"
        "    'write lease': (fcntl.fcntl, file, 1024, 1), 'read lease': (fcntl.fcntl, open('x'), 1024, 0),\n"
        "    'notify': (fcntl.fcntl, os.open('.', 0), 1026, 1), 'signal': (fcntl.fcntl, ends[0], 10, 9),\n"
        "    'owner': (fcntl.fcntl, ends[0], 8, os.getppid()), 'ex': (fcntl.fcntl, ends[0], 15, bytes(4) + parent),\n"
        "    'FIOSETOWN': (fcntl.ioctl, ends[0], 0x8901, parent),\n"
        "    'SIOCSPGRP': (fcntl.ioctl, ends[0], 0x8902, parent),\n"
        "}\n"
        "for name, (call, *given) in ways.items():\n"
        "    try: call(*given)\n    except PermissionError: continue\n    print(name)\n"
        "print('done')"
    )
    assert (await run_python(sandbox, code)).stdout == b"done\n"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """5,000 open descriptors in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip("this user may not have so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5000)]
    yield
    for fd in opened:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_worker_with_many_descriptors_runs_programs(sandbox: LocalSandbox, many_descriptors: None):
    finished = await run_python(sandbox, "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    assert finished.stdout == b"[0, 1, 2, 3]\n", finished  # the last one lists them
    session = PythonSession(sandbox, Limits())
    assert (await session.run("1 + 1", 60)).result == "2"
    await session.close()


async def test_a_harness_with_many_descriptors_runs_programs(many_descriptors: None):
    async with Subprocess(memory_mib=512) as place:
        ended = await place.run("echo hi", wall_s=60.0)
    assert (ended.exit_status, ended.stdout) == (0, b"hi\n")
