"""Limits count everything that a program may hold: memory that no process owns, sockets, files, kinds of sockets."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from gymq.sandbox import MIB, Limits, LocalSandbox, PythonSession, Subprocess
from tests.sandbox.conftest import PROCESS_AT_NIGHT, run_python, sandbox

__all__ = ["sandbox"]

LIMITS = Limits(time_s=60.0, memory_bytes=128 * MIB, disk_bytes=32 * MIB, processes=8)

# Each holds as much as it can and says at the end how much that is, in MiB; a number beyond the limit is a hole.
HOARDS = {
    "files in memory": """
        held = 0
        while held < 1500:
            fd = os.memfd_create('x')
            for _ in range(60): held += os.write(fd, bytes(2**20)) >> 20
    """,
    "SysV segments": """
        held = 0
        for _ in range(50):
            segment = libc.shmget(0, 32 << 20, 0o1600)
            if segment < 0: break
            libc.shmat.restype = ctypes.c_void_p
            ctypes.memset(libc.shmat(segment, None, 0), 1, 32 << 20); held += 32
    """,
    "shared maps of six processes": """
        for _ in range(6):
            if os.fork() == 0:
                shared = mmap.mmap(-1, 80 << 20)
                for at in range(0, 80 << 20, 4096): shared[at] = 1
                time.sleep(1000)
        time.sleep(1000)
        held = 480
    """,
    "a shared map that nobody looks at": """
        maps = []
        for _ in range(20):
            if os.fork() == 0:
                shared = mmap.mmap(-1, 20 << 20)
                shared.write(bytes(20 << 20))
                time.sleep(1000)
        time.sleep(1000)
        held = 400
    """,
    "pairs of sockets": """
        pairs, held = [], 0
        try:
            while True:
                pair = socket.socketpair()
                pairs.append(pair)
                for end in pair:
                    try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
                    except OSError: pass
                    end.setblocking(False)
                    try:
                        while True: held += end.send(bytes(1 << 16)) / 2**20
                    except BlockingIOError: pass
        except OSError: pass
    """,
    "pairs of sockets of many processes": """
        for _ in range(7):
            if os.fork() == 0: break
        pairs = []
        while True:
            try: pair = socket.socketpair()
            except OSError: time.sleep(1000)
            pairs.append(pair)
            for end in pair:
                end.setblocking(False)
                try:
                    while True: end.send(bytes(1 << 16))
                except BlockingIOError: pass
    """,
    "connections that are never accepted": """
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(b'\\0many'); listening.listen(4096)
        held = 0
        for _ in range(3000):
            end = socket.socket(socket.AF_UNIX)
            end.connect(b'\\0many')
            end.setblocking(False)
            try:
                while True: held += end.send(bytes(1 << 16)) / 2**20
            except BlockingIOError: pass
            end.close()
        time.sleep(1)
    """,
    "datagrams that are never read": """
        held, receivers = 0, []
        for number in range(200):
            receivers.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            receivers[-1].bind(b'\\0of-%d' % number)
            for _ in range(10):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                    held += end.sendto(bytes(200_000), b'\\0of-%d' % number) / 2**20
        time.sleep(1)
    """,
    "small messages over connections that are never accepted": """
        listening = socket.create_server(('127.0.0.1', 0), backlog=4096)
        for _ in range(3000):
            end = socket.create_connection(listening.getsockname())
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(160): end.send(b'x')
            end.close()
        time.sleep(1)
        held = 3000 * 0.1  # with what the kernel adds to each message
    """,
    "events that are never read": """
        watching = [libc.inotify_init1(0) for _ in range(128)]
        for watch in watching: libc.inotify_add_watch(watch, b'.', 0xfff)
        for number in range(2000):
            name = 'x' * 240 + str(number)
            open(name, 'w').close(); os.unlink(name)
        held = 200 if min(watching) >= 0 else 0
    """,
    "locks on parts of a file": """
        held = 0
        with open('x', 'w') as file:
            for number in range(1_500_000, 0, -1):
                fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number); held += 216 / 2**20
            time.sleep(1.5)
    """,
    "locks that belong to no process": """
        held = 0
        with open('x', 'w') as file:
            for number in range(1_500_000, 0, -1):
                lock = struct.pack('=hhxxxxqqi4x', 1, 0, 2 * number, 1, 0)
                try: fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
                except OSError: break
                held += 216 / 2**20
            time.sleep(1.5)
    """,
    "pages of which a socket was given one byte": """
        held, pairs = 0, []
        try:
            while held < 1500:
                (source, end), (given, _) = os.pipe(), socket.socketpair()
                pairs.append((source, end, given, _))
                given.setblocking(False)
                while True:
                    file = os.open('x', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                    os.write(file, bytes(16 * 4096))
                    for page in range(16): os.splice(file, end, 1, offset_src=4096 * page)
                    os.close(file); os.unlink('x')
                    try: held += os.splice(source, given.fileno(), 16, flags=2) * 4096 / 2**20
                    except BlockingIOError: break
        except OSError: pass
    """,
    "pages of which a connection was sent one byte": """
        held, connections = 0, []
        try:
            listening = socket.create_server(('127.0.0.1', 0), backlog=100)
            while held < 1500:
                connections.append(socket.create_connection(listening.getsockname()))
                connections[-1].setblocking(False)
                while True:
                    file = os.open('x', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                    os.write(file, bytes(16 * 4096))
                    try:
                        for page in range(16):
                            held += os.sendfile(connections[-1].fileno(), file, 4096 * page, 1) * 4096 / 2**20
                    except BlockingIOError: break
                    finally: os.close(file)
        except OSError: pass
    """,
    "descriptors that epoll watches": """
        top = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
        child = os.fork() and os.fork()
        sources, watching, held = [], [], 0
        for _ in range(30):
            source, end = os.pipe()
            os.close(end)
            sources.append(source)
        for _ in range(120):
            watching.append(select.epoll())
            for source in sources:
                for number in range(top * 5 // 8, top):
                    os.dup2(source, number)
                    watching[-1].register(number, 1)
            for number in range(top * 5 // 8, top): os.close(number)
            held += 3 * 30 * len(range(top * 5 // 8, top)) * 340 / 2**20
        time.sleep(30 if child else 1000)  # until it is counted, also on a busy machine
    """,
    "message queues": """
        held = 0
        for key in range(3000):
            queue = libc.msgget(0, 0o1600)
            if queue < 0: break
            while libc.msgsnd(queue, b'x' * 8192, 8000, 0o4000) == 0: held += 8000 / 2**20
    """,
    "shared memory by name": """
        held = 0
        for number in range(40):
            with open(f'/dev/shm/gymq-test-{os.getpid()}-{number}', 'wb') as file:
                os.unlink(file.name)
                os.dup(file.fileno())
                held += file.write(bytes(8 << 20)) >> 20
    """,
}


@pytest.mark.parametrize("hoard", HOARDS)
async def test_memory_is_limited_wherever_it_is(sandbox: LocalSandbox, hoard: str):
    if hoard == "locks on parts of a file" and "(weaker)" in sandbox.describe():
        pytest.skip("needs control groups")
    if hoard == "shared memory by name" and sandbox.describe().startswith("process"):
        pytest.skip("a program there reaches the machine's own /dev/shm")
    lines = "\n".join(line.removeprefix("        ") for line in HOARDS[hoard].splitlines())
    modules = "ctypes, fcntl, mmap, os, resource, select, socket, struct, time"
    code = f"import {modules}\nlibc = ctypes.CDLL(None)\n{lines}\nprint(held)"
    finished = await run_python(sandbox, code, LIMITS)
    assert finished.limit == "memory" or float(finished.stdout or 0) <= 128, finished


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
