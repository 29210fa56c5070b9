"""Which isolation this machine and this user allow, found out by trying."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gymq.sandbox import visible
from gymq.sandbox.inside import landlock
from gymq.sandbox.inside.view import DEVICES, LINKS, SHARED_MEMORY

IsolationName = Literal["namespaces", "bubblewrap", "process"]

SUPERVISOR = Path(__file__).parent / "inside"
# -I and -S: neither the environment nor installed packages have a say, and it starts faster.
_BOOT = "import sys; sys.path.append(sys.argv[1]); from inside.{} import main; main()"

# As which user: `own` is one that root gives to the program, `same` the worker's. `first` is one of its own too, but
# root becomes it before everything else: where root may not make namespaces, ordinary users may make those of users.
User = Literal["own", "first", "same"]

# What belongs to an undumpable process in `/proc` is that of user 0 there, and a program must not be this user.
_USER_NAMESPACE = ["--user", "--map-user=1000", "--map-group=1000", "--keep-caps"]

# 500,000,000 and the process's number, as `supervisor._own_uid` has it.
_BECOME_FIRST = """user=$((500000000 + $$))
exec "$0" --reuid "$user" --regid "$user" --clear-groups "$@\""""


@dataclass(frozen=True)
class Isolation:
    """One way to start the supervisor."""

    name: IsolationName
    user: User

    @property
    def own_view(self) -> bool:
        """Return whether it has its own view of the file system, so that the machine's files are hidden."""
        return self.name != "process"

    @property
    def confines_files(self) -> bool:
        """Return whether it hides files although it has no view of its own."""
        return not self.own_view and landlock.version() >= 2  # before, no file could be moved to another folder

    @property
    def holds(self) -> str:
        """What is hidden from a program, in a few words."""
        if self.own_view:
            return f"own file system view, processes, network and IPC ({self.name})"
        if self.confines_files:
            return "no sockets; files are hidden but for those of the system (Landlock), other processes are NOT hidden"
        return "no sockets; files and processes that the user may reach are NOT hidden"

    def command(self, supervisor: list[str], folders: Mapping[str, str], disk_bytes: int) -> list[str]:
        """Return the command line that runs the supervisor in its namespaces."""
        match self.name:
            case "namespaces":
                spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child"]
                user = [] if self.user == "own" else _USER_NAMESPACE
                command = [_found("unshare"), *user, *spaces, "--", *supervisor]
            case "bubblewrap":
                command = [_found("bwrap"), *_bubblewrap_options(folders, disk_bytes), "--", *supervisor]
            case "process":
                command = supervisor
        return ["/bin/sh", "-c", _BECOME_FIRST, _found("setpriv"), *command] if self.user == "first" else command


def candidates(wanted: str | None) -> list[Isolation]:
    """Return what may work here, the strongest first.

    Args:
        wanted: the name of what the options ask for. `process` hides nothing, so it has to be asked for.
    """
    is_root = os.geteuid() == 0
    ordinary: User = "first" if is_root else "same"
    found = [Isolation("namespaces", "own")] if is_root else []
    found += [Isolation("namespaces", ordinary), Isolation("bubblewrap", ordinary)]
    if wanted is None:
        return found
    found.append(Isolation("process", "own" if is_root else "same"))
    return [isolation for isolation in found if isolation.name == wanted]


def command_inside(module: str) -> list[str]:
    """Return the command that runs a module of `inside/`; its arguments follow."""
    return [sys.executable, "-I", "-S", "-c", _BOOT.format(module), str(SUPERVISOR.parent)]


def _bubblewrap_options(folders: Mapping[str, str], disk_bytes: int) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "sandbox"]
    options += ["--proc", "/proc", "--tmpfs", "/dev"]
    for name in DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for link, target in LINKS.items():
        options += ["--symlink", target, link]
    options += ["--remount-ro", "/dev", "--size", str(disk_bytes), "--tmpfs", "/tmp", "--dir", SHARED_MEMORY]
    hidden = []
    for path, is_shown in [*visible.view(), (str(SUPERVISOR), True)]:
        if is_shown and os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif is_shown:
            options += ["--ro-bind-try", path, path]
        elif os.path.isdir(path):
            options += ["--tmpfs", path]
            hidden.append(path)
        else:
            options += ["--ro-bind", "/dev/null", path]
    for position, (inside, outside) in enumerate(folders.items()):
        options += ["--ro-bind", outside, f"/run/folders/{position}", "--size", str(disk_bytes), "--tmpfs", inside]
    return [*options, *(word for path in ("/", *hidden) for word in ("--remount-ro", path))]


def _found(name: str) -> str:
    return shutil.which(name) or name
