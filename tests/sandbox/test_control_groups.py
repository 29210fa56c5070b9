"""The kernel limits programs by control groups where a worker may make them, and a worker says where it may not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gymq
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import ComponentFailed
from gymq.processes import KillableProcesses
from gymq.sandbox import MIB, Limits, LocalSandbox, control_groups, local
from gymq.sandbox.control_groups import ControlGroup, ControlGroups
from gymq.sandbox.inside import descendants
from gymq.sandbox.inside.group import ProgramGroup
from tests.support.waiting import DEADLINE_S, until

from .conftest import alive, run_python
from .users import REPOSITORY, delegated, python_as

HOLD = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(60 * 2**20)
        for at in range(0, len(held), 4096): held[at] = 1
        time.sleep(99)
time.sleep(99)
"""


@pytest.fixture
def groups() -> ControlGroups:
    """Where the tests may make groups."""
    try:
        return ControlGroups.found()
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")


@pytest.fixture
def group(groups: ControlGroups) -> Iterator[ControlGroup]:
    """A group of this test."""
    made = groups.make(64 * MIB, 4)
    yield made
    if made.folders[0].exists():
        made.remove()


@pytest.fixture
def around(groups: ControlGroups, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlGroup]:
    """A group in which this process, and none of the other tests, makes those of its programs."""
    made = groups.make(100 * MIB, 100)
    monkeypatch.setattr(local, "_control_groups", lambda: ControlGroups(made.folders))
    yield made
    made.remove()


def left(around: ControlGroup) -> list[Path]:
    return [path for folder in around.folders for path in folder.glob("gymq-*")]


def is_swept(group: ControlGroup) -> bool:
    """Let this process remove what others left, and return whether the group is gone."""
    ControlGroups.found()
    return not any(folder.exists() for folder in group.folders)


def entered(group: ControlGroup, code: str) -> subprocess.Popen[bytes]:
    """Start a program in a group."""
    members = " ".join(str(folder / "cgroup.procs") for folder in group.folders)
    script = f'for members in {members}; do echo $$ > $members; done; exec "$@"'
    return subprocess.Popen(["sh", "-ec", script, "sh", sys.executable, "-I", "-c", code], stdout=subprocess.PIPE)


def opened(group: ControlGroup) -> ProgramGroup:
    return ProgramGroup(group.open_files(contextlib.ExitStack()), 64 * MIB)


def test_memory_beyond_the_limit_ends_a_program(group: ControlGroup):
    with entered(group, f"bytearray(b'x' * {200 * MIB})") as program:
        assert program.wait(300) == -signal.SIGKILL
    assert opened(group).ran_out_of_memory()


def test_memory_within_the_limit_is_no_reason(group: ControlGroup):
    with entered(group, f"bytearray(b'x' * {20 * MIB})") as program:
        assert program.wait(300) == 0
    assert not opened(group).ran_out_of_memory()


def test_computing_of_children_that_nobody_waits_for_counts(group: ControlGroup):
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(3):\n"
        "    if os.fork() == 0:\n        while time.process_time() < 0.3: pass\n        os._exit(0)\n"
        "try: os.wait()\nexcept OSError: pass"
    )
    counted = opened(group)
    with entered(group, code) as program:
        assert program.wait(300) == 0
    assert counted.computed() > 0.9


def test_no_more_processes_than_allowed(group: ControlGroup):
    code = (
        "import os, time\nmade = 0\nfor _ in range(10):\n    try:\n        if os.fork() == 0: time.sleep(99)\n"
        "        made += 1\n    except OSError: pass\nprint(made, flush=True)"
    )
    with entered(group, code) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"3\n"


def test_removing_a_group_ends_its_processes(groups: ControlGroups, group: ControlGroup):
    with entered(group, "import os, time\nos.fork()\nprint(1, flush=True)\ntime.sleep(99)") as program:
        assert program.stdout is not None
        program.stdout.readline()
        group.remove()
        assert program.wait(300) == -signal.SIGKILL
    assert not any(folder.exists() for folder in group.folders)


async def test_groups_of_killed_workers_are_removed_by_the_next_one(group: ControlGroup):
    with entered(group, "import time\nprint(1, flush=True)\ntime.sleep(99)") as program:
        assert program.stdout is not None
        program.stdout.readline()
        ControlGroups.found()
        assert group.folders[0].exists()  # its owner lives
        os.close(group.lock)
        await until(lambda: is_swept(group))
        assert program.wait(300) == -signal.SIGKILL


async def test_groups_in_a_group_of_a_killed_worker_are_removed_with_it(group: ControlGroup):
    inner = ControlGroups(group.folders).make(16 * MIB, 2)
    os.close(inner.lock)
    os.close(group.lock)
    await until(lambda: is_swept(group))


async def test_no_group_outlives_its_program(around: ControlGroup, closed_sandbox: LocalSandbox):
    running = asyncio.create_task(run_python(closed_sandbox, "import time; time.sleep(1)"))
    await until(lambda: len(left(around)) > 0)
    await running
    assert not left(around)


async def test_no_group_outlives_a_supervisor_that_is_killed(around: ControlGroup, closed_sandbox: LocalSandbox):
    marker = f"killed-{os.getpid()}"

    async def kill() -> None:
        await until(lambda: len(alive(marker)) > 0)
        for pid in alive(marker):
            parent = int(descendants.stat(pid)[1])
            os.kill(parent, signal.SIGKILL)

    killing = asyncio.create_task(kill())
    with pytest.raises(ComponentFailed):
        await run_python(closed_sandbox, f"import time; time.sleep(99)  # {marker}")
    await killing
    assert not left(around)
    assert not alive(marker)


@pytest.mark.usefixtures("around")
async def test_the_machine_s_own_lack_of_memory_is_no_verdict():
    """The group around that of the program is full: the kernel ends the program, which kept within its limit."""
    async with LocalSandbox() as sandbox:
        with pytest.raises(ComponentFailed, match="out of memory"):
            await run_python(sandbox, HOLD, Limits(time_s=60.0, memory_bytes=1000 * MIB))


async def test_without_groups_a_sandbox_says_that_it_is_weaker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "_control_groups", lambda: "not permitted")
    async with LocalSandbox() as sandbox:
        assert "(weaker)" in sandbox.describe()
        assert "not permitted" in sandbox.describe()
        assert "docs/sandbox.md" in sandbox.weakness
        finished = await run_python(sandbox, HOLD, Limits(time_s=60.0, memory_bytes=128 * MIB))
        assert finished.limit == "memory"


async def test_without_groups_sockets_hold_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "_control_groups", lambda: "not permitted")
    code = """
import os, socket, time
reader, writer = os.pipe()
parent = os.getpid()
for _ in range(6):
    if os.fork() == 0: break
held, ends = 0, []
try: socket.socket(); print('a socket')
except PermissionError: pass
try:
    while True:
        for end in socket.socketpair():
            ends.append(end); end.setblocking(False)
            try:
                while True: held += end.send(bytes(65536))
            except BlockingIOError: pass
except OSError: pass
os.write(writer, b'%9d' % held)
if os.getpid() != parent: time.sleep(99)
print(sum(int(os.read(reader, 9)) for _ in range(7)))
"""
    async with LocalSandbox() as sandbox:
        finished = await run_python(sandbox, code, Limits(time_s=60.0, memory_bytes=128 * MIB, processes=8))
    assert 0 < int(finished.stdout) <= 128 * MIB, finished


async def test_a_worker_reports_that_its_sandbox_is_weaker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "_control_groups", lambda: "not permitted")

    class Coder(gymq.SandboxedEnvironment[gymq.Row]):
        """Runs programs."""

        async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
            return gymq.Verdict(0.0)

    author = Coder(name="coder")
    reported = ResourcesRunner(author, KillableProcesses())
    assert reported.stats()["sandbox_weakness"] == ""
    await author.start()
    assert "not permitted" in reported.stats()["sandbox_weakness"]
    await author.stop()


def test_an_ordinary_user_has_groups_where_one_was_delegated(groups: ControlGroups):
    code = (
        "import asyncio, gymq.sandbox\nsandbox = gymq.sandbox.LocalSandbox()\nasyncio.run(sandbox.start())\n"
        "print(sandbox.describe())"
    )
    with delegated(python_as("an ordinary user", "-c", code)) as command:
        ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    assert b"limits by control groups" in ran.stdout, ran.stderr.decode()


class TestVersion2:
    """A tree of version 2 made of plain files, since a kernel has its controllers in one of both versions only."""

    @pytest.fixture
    def tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "mountinfo").write_text(f"30 20 0:26 / {tmp_path}/tree rw,relatime - cgroup2 cgroup2 rw\n")
        (tmp_path / "cgroup").write_text("0::/system.slice/gymq.service/workers\n")
        tree = tmp_path / "tree"
        (tree / "system.slice/gymq.service/workers").mkdir(parents=True)
        for folder in (tree, *tree.rglob("*")):
            (folder / "cgroup.subtree_control").write_text("")
        (tree / "cgroup.controllers").write_text("cpu memory pids\n")
        monkeypatch.setattr(control_groups, "_PROC", tmp_path)
        monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # the files of a group go with it
        return tree

    def test_groups_are_made_in_the_nearest_one_that_allows_it(self, tree: Path, monkeypatch: pytest.MonkeyPatch):
        def write_text(path: Path, text: str) -> None:
            if path == tree / "system.slice/gymq.service/workers/cgroup.subtree_control":
                raise OSError(16, "it has processes")
            path.write_bytes(text.replace("+", "").encode())

        monkeypatch.setattr(Path, "write_text", write_text)
        (found,) = ControlGroups.found().parents
        assert found == tree / "system.slice/gymq.service"

    def test_there_is_no_swap_where_the_kernel_counts_it(self, tree: Path):
        (tree / "memory.swap.max").write_text("max")
        assert dict(control_groups._settings((tree,), 1000, 5))[tree / "memory.swap.max"] == 0

    def test_limits_end_all_at_once(self, tree: Path):
        group = ControlGroups((tree,)).make(1000, 5)
        (folder,) = group.folders
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "memory.max": "1000",
            "memory.oom.group": "1",
            "pids.max": "5",
        }

    @pytest.mark.parametrize(
        ("events", "is_out"),
        [("oom 0\noom_kill 0\n", False), ("oom 2\noom_kill 1\n", True), ("oom 3\noom_kill 0", False)],
    )
    def test_events_tell_memory_from_time(self, tree: Path, events: str, is_out: bool):
        group = ControlGroups((tree,)).make(1000, 5)
        (folder,) = group.folders
        (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\n{events}")
        (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
        (folder / "cgroup.procs").write_text("")
        counted = ProgramGroup(group.open_files(contextlib.ExitStack()), 1000)
        assert counted.ran_out_of_memory() == is_out
        assert counted.computed() == 2.5

    def test_a_process_that_was_ended_below_the_limit_is_the_machine_s_fault(self, tree: Path):
        group = ControlGroups((tree,)).make(1000, 5)
        (folder,) = group.folders
        (folder / "memory.events").write_text("oom 0\noom_kill 1\n")
        for name in ("cpu.stat", "cgroup.procs"):
            (folder / name).write_text("")
        with pytest.raises(MemoryError):
            ProgramGroup(group.open_files(contextlib.ExitStack()), 1000).ran_out_of_memory()


class TestRealVersion2:
    """A hierarchy of version 2 that has no limits, since the kernel has those in version 1."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Iterator[Path]:
        root = tmp_path / "tree"
        root.mkdir()
        if subprocess.run(["mount", "-t", "cgroup2", "none", root], capture_output=True, check=False).returncode:
            pytest.skip("cgroup2 cannot be mounted here")
        folder = root / f"gymq-test-{os.getpid()}"
        folder.mkdir()
        yield folder
        control_groups._remove((folder,))
        subprocess.run(["umount", root], check=True)

    def test_processes_are_born_in_it_counted_and_ended(self, folder: Path):
        spin = [sys.executable, "-c", "import os; os.fork()\nwhile True: pass"]
        with open(os.devnull, "rb") as none, (folder / "cpu.stat").open("rb") as usage:
            with (folder / "cgroup.procs").open("wb", buffering=0) as members:
                group = ProgramGroup([none.fileno(), none.fileno(), usage.fileno(), members.fileno()], 1000)
                program = subprocess.Popen(spin, preexec_fn=group.enter)
            give_up = time.monotonic() + DEADLINE_S
            while len((folder / "cgroup.procs").read_text().split()) < 2 or group.computed() < 0.05:
                assert time.monotonic() < give_up
                time.sleep(0.01)
            control_groups._remove((folder,))
        assert program.wait() == -signal.SIGKILL
        assert not folder.exists()
