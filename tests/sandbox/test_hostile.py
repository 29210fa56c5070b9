"""What programs try. Each runs in every isolation that promises to stop it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gymq.sandbox import MIB, Limits, LocalSandbox

from .conftest import alive, run_python

REPOSITORY = Path(__file__).parents[2]


def started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE)


async def gone(marker: str) -> bool:
    """Whether no process with the marker is left; the kernel may take a moment to end them."""
    for _ in range(200):
        if not alive(marker):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_an_endless_loop_ends_at_the_clock(sandbox: LocalSandbox):
    finished = await run_python(sandbox, "while True: pass", Limits(time_s=0.3))
    assert (finished.limit, finished.exit_status) == ("time", -signal.SIGKILL)


async def test_a_program_cannot_ignore_its_end(sandbox: LocalSandbox):
    code = "import signal\nfor n in set(signal.Signals) - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    assert (await run_python(sandbox, code, Limits(time_s=0.5))).limit == "time"


async def test_sleeping_does_not_help(sandbox: LocalSandbox):
    assert (await run_python(sandbox, "import time; time.sleep(1000)", Limits(time_s=0.5))).limit == "time"


async def test_a_fork_bomb_stays_small_and_leaves_nothing(sandbox: LocalSandbox):
    marker = f"bomb-{os.getpid()}-{time.monotonic_ns()}"
    code = f"import os  # {marker}\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    finished = await run_python(sandbox, code, Limits(time_s=0.5, processes=20))
    assert finished.limit == "time"
    assert await gone(marker)


async def test_no_more_processes_than_allowed(closed_sandbox: LocalSandbox):
    code = (
        "import os, time\nmade = 0\nfor _ in range(100):\n    try:\n        if os.fork() == 0: time.sleep(1000)\n"
        "        made += 1\n    except OSError: pass\nprint(made)"
    )
    finished = await run_python(closed_sandbox, code, Limits(time_s=60.0, processes=20))
    assert 0 < int(finished.stdout) < 20


async def test_memory_of_one_process_is_limited(sandbox: LocalSandbox):
    finished = await run_python(sandbox, "bytearray(10**10)", Limits(time_s=60.0))
    assert (finished.exit_status, b"MemoryError" in finished.stderr) == (1, True)


async def test_memory_of_many_processes_is_limited_together(sandbox: LocalSandbox):
    code = (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        held = bytearray(b'x' * (50 * 2**20))\n        time.sleep(1000)\ntime.sleep(1000)"
    )
    finished = await run_python(sandbox, code, Limits(time_s=120.0, memory_bytes=200 * MIB))
    assert finished.limit == "memory"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_is_cut(sandbox: LocalSandbox, stream):
    code = f"import sys\nwhile True: sys.{stream}.write('x' * 10000)"
    finished = await run_python(sandbox, code, Limits(time_s=120.0, output_bytes=100_000))
    assert finished.limit == "output"
    assert len(getattr(finished, stream)) == 100_000


async def test_output_of_exactly_the_limit_is_fine(sandbox: LocalSandbox):
    finished = await run_python(sandbox, "print('x' * 99_999)", Limits(time_s=60.0, output_bytes=100_000))
    assert (finished.limit, len(finished.stdout)) == (None, 100_000)


async def test_a_file_cannot_grow_for_ever(sandbox: LocalSandbox):
    code = "f = open('big', 'wb')\nwhile True: f.write(bytes(2**20)); f.flush()"
    finished = await run_python(sandbox, code, Limits(time_s=60.0, file_bytes=4 * MIB))
    assert b"File too large" in finished.stderr


async def test_many_files_cannot_fill_the_machine(closed_sandbox: LocalSandbox):
    code = "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(bytes(2**20)); n += 1"
    finished = await run_python(closed_sandbox, code, Limits(time_s=60.0, disk_bytes=16 * MIB))
    assert b"No space left" in finished.stderr


async def test_a_bomb_of_links_leaves_nothing(sandbox: LocalSandbox):
    code = "import os\nos.symlink('/etc', 'out')\nfor n in range(3000): os.symlink('.', f'loop{n}')"
    assert (await run_python(sandbox, code)).exit_status == 0
    assert (await run_python(sandbox, "import os; print(os.listdir('.'))")).stdout == b"[]\n"


async def test_a_daemon_ends_with_its_program(sandbox: LocalSandbox):
    marker = f"daemon-{os.getpid()}-{time.monotonic_ns()}"
    code = (
        f"import os, time  # {marker}\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for fd in range(3): os.close(fd)\n        time.sleep(1000)\n    os._exit(0)\nprint('done')"
    )
    finished = await run_python(sandbox, code)
    assert finished.stdout == b"done\n"
    assert await gone(marker)


async def test_a_child_that_holds_the_output_does_not_hold_the_result(sandbox: LocalSandbox):
    finished = await run_python(sandbox, "import os, time\nif os.fork() == 0: time.sleep(1000)\nprint('done')")
    assert (finished.stdout, finished.limit) == (b"done\n", None)


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
async def test_the_machine_cannot_be_reached(sandbox: LocalSandbox, kind):
    listening = socket.socket(socket.AF_INET, getattr(socket, kind))
    listening.bind(("127.0.0.1", 0))
    listening.setblocking(False)
    if kind == "SOCK_STREAM":
        listening.listen()
    code = (
        f"import socket\ns = socket.socket(socket.AF_INET, socket.{kind})\n"
        f"s.connect(('127.0.0.1', {listening.getsockname()[1]}))\ns.send(b'x')"
    )
    with listening:
        await run_python(sandbox, code)
        with pytest.raises(BlockingIOError):
            listening.accept() if kind == "SOCK_STREAM" else listening.recv(10)


async def test_nothing_on_the_network_can_be_reached(sandbox: LocalSandbox):
    attempts = [
        "socket.create_connection(('192.0.2.1', 80), 5)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
        "socket.getaddrinfo('example.org', 80)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.create_connection(('::1', 4222), 5)",
    ]
    code = f"import socket\nfor attempt in {attempts!r}:\n    try: eval(attempt)\n    except OSError: print(attempt)"
    assert (await run_python(sandbox, code)).stdout.decode().splitlines() == attempts


@pytest.mark.parametrize("is_abstract", [False, True])
async def test_a_unix_socket_of_the_machine_cannot_be_reached(sandbox: LocalSandbox, is_abstract, tmp_path):
    name = f"\0gymq-test-{os.getpid()}" if is_abstract else str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        code = f"import socket\ntry: socket.socket(socket.AF_UNIX).connect({name!r})\nexcept OSError: print('refused')"
        assert (await run_python(sandbox, code)).stdout == b"refused\n"


async def test_the_worker_s_environment_is_not_handed_on(sandbox: LocalSandbox, monkeypatch):
    monkeypatch.setenv("GYMQ_NATS", "nats://user:secret@host")
    finished = await run_python(sandbox, "import os; print(dict(os.environ))")
    assert b"GYMQ" not in finished.stdout


async def test_no_other_process_s_environment_or_memory_can_be_read(closed_sandbox: LocalSandbox):
    code = (
        "import os\nfound = []\nfor pid in filter(str.isdecimal, os.listdir('/proc')):\n"
        "    for name in ['environ', 'mem', 'maps', 'cwd', 'root', 'exe', *(f'fd/{n}' for n in range(30))]:\n"
        "        path = f'/proc/{pid}/{name}'\n        try:\n"
        "            if int(pid) != os.getpid():\n"
        "                found.append((path, os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)))\n"
        "        except OSError: pass\nprint(found)"
    )
    assert (await run_python(closed_sandbox, code)).stdout == b"[]\n"


async def test_files_of_the_machine_are_hidden(closed_sandbox: LocalSandbox, tmp_path):
    secret = tmp_path / "agent.password"
    secret.write_text("hunter2")
    home, project = Path.home() / ".bashrc", REPOSITORY / "pyproject.toml"
    paths = [str(path) for path in (secret, home, project, "/etc/shadow", "/etc/hostname", "/proc/kcore", "/root")]
    code = f"import os\nprint([path for path in {paths!r} if os.path.isfile(path) and open(path, 'rb').read(1)])"
    assert (await run_python(closed_sandbox, code)).stdout == b"[]\n"


async def test_files_of_the_machine_cannot_be_used_without_namespaces_either(sandbox: LocalSandbox, tmp_path):
    if "Landlock" not in sandbox.describe() and sandbox.describe().startswith("process"):
        pytest.skip("the kernel has no Landlock")
    secret = tmp_path / "rows.jsonl"
    secret.write_text("hunter2")
    paths = [str(path) for path in (secret, REPOSITORY / "pyproject.toml", "/etc/shadow")]
    code = (
        f"import os, tempfile\nfor path in {paths!r}:\n    try: print(open(path).read(1))\n    except OSError: pass\n"
        "try: import gymq; print('gymq')\nexcept ImportError: pass\n"
        "tempfile.TemporaryFile(), os.mkdir('a'), open('b', 'w').close()\n"
        "os.rename('b', 'a/b'), open('/dev/null', 'w').write('x'), print('done')"
    )
    assert (await run_python(sandbox, code)).stdout == b"done\n"


async def test_the_machine_s_files_cannot_be_changed(closed_sandbox: LocalSandbox):
    paths = ["/usr/x", "/etc/x", "/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", f"{sys.prefix}/x"]
    code = (
        f"written = []\nfor path in {paths!r}:\n    try:\n        open(path, 'w').write('x'); written.append(path)\n"
        "    except OSError: pass\nprint(written)"
    )
    assert (await run_python(closed_sandbox, code)).stdout == b"[]\n"


async def test_signals_reach_nobody_outside(closed_sandbox: LocalSandbox):
    with started("sleep", "1000") as bystander:
        try:
            code = (
                "import os, signal\nfor pid in range(1, 2000):\n    if pid != os.getpid():\n"
                "        try: os.kill(pid, 9)\n        except OSError: pass\n"
                f"try: os.kill({bystander.pid}, 9)\nexcept OSError: pass\nprint('still here')"
            )
            finished = await run_python(closed_sandbox, code)
            assert finished.stdout == b"still here\n"
            assert bystander.poll() is None
        finally:
            bystander.kill()


async def test_the_kernel_is_asked_for_privileges_in_vain(sandbox: LocalSandbox):
    attempts = [
        "libc.ptrace(16, 1, 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "libc.umount2(b'/proc', 2)",
        "libc.chroot(b'/tmp')",
        "libc.setns(0, 0)",
        "libc.syscall(425, 1, 0)",  # io_uring_setup
        "libc.syscall(442, 0, 0, 0, 0, 0)",  # mount_setattr
        "libc.setuid(0) if os.getuid() else -1",
    ]
    code = f"import ctypes, os\nlibc = ctypes.CDLL(None)\nfor attempt in {attempts!r}: print(attempt, eval(attempt))"
    answers = (await run_python(sandbox, code)).stdout.decode().splitlines()
    assert answers == [f"{attempt} -1" for attempt in attempts]


async def test_programs_that_set_a_user_id_do_not(sandbox: LocalSandbox):
    status = (await run_python(sandbox, "print(open('/proc/self/status').read())")).stdout
    for line in (b"NoNewPrivs:\t1", b"CapPrm:\t0000000000000000", b"CapEff:\t0000000000000000", b"Seccomp:\t2"):
        assert line in status


async def test_a_program_has_no_files_open_but_its_own(sandbox: LocalSandbox):
    code = "import os\nprint([fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}')])"
    assert (await run_python(sandbox, code)).stdout == b"[]\n"


async def test_cancelling_a_run_ends_its_program(sandbox: LocalSandbox):
    marker = f"cancelled-{os.getpid()}-{time.monotonic_ns()}"
    running = asyncio.create_task(run_python(sandbox, f"import time; time.sleep(1000)  # {marker}"))
    for _ in range(600):
        if len(alive(marker)) > 0:
            break
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await gone(marker)


async def test_a_worker_that_is_killed_leaves_no_program(sandbox: LocalSandbox):
    marker = f"orphan-{os.getpid()}-{time.monotonic_ns()}"
    assert sandbox._isolation is not None
    code = (
        "import asyncio\nfrom gymq.sandbox import *\nasync def main():\n"
        f"    sandbox = LocalSandbox(isolation={sandbox._isolation.name!r}, python={sandbox.python!r})\n"
        f"    argv = (sandbox.python, '-I', '-c', 'import time; time.sleep(1000)  # {marker}')\n"
        "    await sandbox.run(Program(argv), Limits(time_s=None))\nasyncio.run(main())"
    )
    worker = started(sys.executable, "-c", code)
    for _ in range(600):
        if len(alive(marker)) > 1 or worker.poll() is not None:
            break
        await asyncio.sleep(0.05)
    assert worker.poll() is None, worker.communicate()[1]
    worker.kill()
    worker.communicate()
    assert await gone(marker)
