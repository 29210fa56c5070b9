"""Control groups for programs: the kernel limits their memory and processes, and counts their computing.

Both versions of the kernel's interface are used: 2 has one tree of groups, 1 has one for each controller.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gymq.processes.held_folder import lock_folder

log = logging.getLogger("gymq.sandbox")

_PROC = Path("/proc/self")
_PREFIX = "gymq-"
_MOVED = "gymq"  # the group into which a container's processes go, so that groups can be made beside it
_CONTROLLERS = ("memory", "pids", "cpuacct")  # of version 1
_NEEDED = {"memory", "pids"}  # of version 2, which always counts computing


@dataclass(frozen=True)
class ControlGroup:
    """The group of one program. It is locked as long as its owner lives."""

    folders: tuple[Path, ...]  # one in version 2, one for each controller in version 1
    lock: int

    def open_files(self, stack: contextlib.ExitStack) -> list[int]:
        """Open the files that `gymq.sandbox.inside.group.ProgramGroup` takes.

        Args:
            stack: closes them.

        Raises:
            OSError: one cannot be opened.
        """
        memory, usage = self.folders[0], self.folders[-1]
        if len(self.folders) == 1:
            read = [memory / "memory.events", memory / "memory.events", usage / "cpu.stat"]
        else:
            peak = memory / "memory.memsw.max_usage_in_bytes"  # with swap, if the kernel counts it
            peak = peak if peak.exists() else memory / "memory.max_usage_in_bytes"
            read = [memory / "memory.oom_control", peak, usage / "cpuacct.usage"]
        fds = []
        for path in (*read, *(folder / "cgroup.procs" for folder in self.folders)):
            fds.append(os.open(path, os.O_RDONLY if path in read else os.O_WRONLY))
            stack.callback(os.close, fds[-1])
        return fds

    def remove(self) -> None:
        """End all processes of the group, and remove it."""
        try:
            _remove(self.folders)
        except OSError as error:
            log.error("the control group of a program was not removed: %s", error)
        finally:
            os.close(self.lock)


@dataclass(frozen=True)
class ControlGroups:
    """A place in which this process may make groups."""

    parents: tuple[Path, ...]  # as `ControlGroup.folders`

    @classmethod
    def found(cls) -> ControlGroups:
        """Return a place: the group of this process, or the nearest one above it that allows groups in it.

        What killed workers left there is removed.

        Raises:
            OSError: there is no such place.
        """
        folders = _own_folders()
        if "" in folders and _words(folders[""][1] / "cgroup.controllers") >= _NEEDED:
            parents = [_with_controllers(*folders[""])]
        elif missing := [name for name in _CONTROLLERS if name not in folders]:
            raise FileNotFoundError(f"the machine has no control groups for {', '.join(missing)}")
        else:
            parents = [folders[name][0] for name in _CONTROLLERS]
        groups = cls(tuple(parents))
        groups._try()
        groups._sweep()
        return groups

    def make(self, memory_bytes: int, processes: int) -> ControlGroup:
        """Make a group.

        Args:
            memory_bytes: limit for the memory of all its processes, with what the kernel and swap hold for them.
            processes: limit for processes and threads.

        Raises:
            OSError: the kernel refused it.
        """
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        folders = tuple(parent / name for parent in self.parents)
        for folder in folders:
            folder.mkdir(exist_ok=True)  # two controllers may share a tree
        group = ControlGroup(folders, os.open(folders[0], os.O_RDONLY | os.O_DIRECTORY))
        fcntl.flock(group.lock, fcntl.LOCK_EX)
        try:
            for path, value in _settings(folders, memory_bytes, processes):
                path.write_text(str(value))
        except OSError:
            group.remove()
            raise
        return group

    def _try(self) -> None:
        """Make a group, put a process into it and remove both.

        Raises:
            OSError: the kernel refused a step.
        """
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
            group = self.make(16 * 1024**2, 1)
            try:
                for folder in group.folders:
                    (folder / "cgroup.procs").write_text(str(process.pid))
            finally:
                group.remove()

    def _sweep(self) -> None:
        for folder in self.parents[0].glob(f"{_PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):  # another worker removes it
                # A younger one may be about to be locked by the worker that makes it.
                if time.time() - folder.stat().st_mtime < 1.0 or (lock := lock_folder(folder)) is None:
                    continue
                outer = [parent / folder.name for parent in self.parents]
                try:
                    _remove(tuple(group for path in outer for group in (path, *path.rglob(f"{_PREFIX}*"))))
                except OSError as error:
                    log.warning("the control group of a worker that is gone cannot be removed: %s", error)
                finally:
                    os.close(lock)


def _own_folders() -> dict[str, tuple[Path, Path]]:
    """Return the group of this process and the topmost one that is mounted by controller; version 2 is named ""."""
    groups, found = {}, {}
    for line in (_PROC / "cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group))
    for line in (_PROC / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        _, _, _, root, mounted, *_ = mount.split()
        name, _, options = kind.split(" ", 2)
        for controller in {"cgroup": options.split(","), "cgroup2": [""]}.get(name, []):
            if controller in groups:
                found[controller] = (Path(mounted) / os.path.relpath(groups[controller], root), Path(mounted))
    return found


def _with_controllers(own: Path, root: Path) -> Path:
    """Return the group whose inner groups can have limits: this one, or the nearest one above it.

    A group of version 2 that has processes can have none. That of a container has all its processes: they are moved.

    Raises:
        OSError: there is none that this process may change.
    """
    if own == root and not _offers(own):
        moved = own / _MOVED
        moved.mkdir(exist_ok=True)
        for process in (own / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (moved / "cgroup.procs").write_text(process)
    while not _offers(own):
        if own == root:
            raise PermissionError(f"no control group above that of this process can have limits: {own}")
        own = own.parent
    return own


def _offers(folder: Path) -> bool:
    """Return whether the groups in a folder of version 2 can have limits; if need be, it is switched on."""
    if not os.access(folder, os.W_OK):
        return False
    switch = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        switch.write_text(" ".join(f"+{name}" for name in _NEEDED))
    return _words(switch) >= _NEEDED


def _settings(folders: tuple[Path, ...], memory_bytes: int, processes: int) -> Iterator[tuple[Path, int]]:
    if len(folders) == 1:
        memory = pids = folders[0]
        yield memory / "memory.max", memory_bytes
        yield memory / "memory.oom.group", 1
        swap, swap_bytes = memory / "memory.swap.max", 0
    else:
        memory, pids, _ = folders
        yield memory / "memory.limit_in_bytes", memory_bytes
        # Version 1 counts the memory of TCP apart: a program gets a small part beside its own.
        yield memory / "memory.kmem.tcp.limit_in_bytes", memory_bytes // 8
        swap, swap_bytes = memory / "memory.memsw.limit_in_bytes", memory_bytes  # of memory and swap together
    yield pids / "pids.max", processes
    if swap.exists():  # the kernel may have no swap, or not count it
        yield swap, swap_bytes


def _remove(folders: tuple[Path, ...]) -> None:
    """Remove the folders of a group, and end its processes, which may take up to ten seconds."""
    end = time.monotonic() + 10.0
    while True:
        try:
            for folder in reversed(folders):  # the first one last, since it has the lock
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        _kill(folders)
        time.sleep(0.005)


def _kill(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        if (switch := folder / "pids.max").exists():  # from now on no new ones
            switch.write_text("0")
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            for process in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)


def _words(path: Path) -> set[str]:
    return set(path.read_text().split())
