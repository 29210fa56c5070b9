"""Which isolation this machine and this user allow, found out by trying."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gymq.sandbox import visible

IsolationName = Literal["namespaces", "bubblewrap", "process"]

SUPERVISOR = Path(__file__).parent / "inside"

WHAT_HOLDS: dict[IsolationName, str] = {
    "namespaces": "own file system view, processes, network and IPC (namespaces), limits",
    "bubblewrap": "own file system view, processes, network and IPC (bubblewrap), limits",
    "process": "limits and no sockets; files and processes that the user may reach are NOT hidden",
}


@dataclass(frozen=True)
class Isolation:
    """One way to start the supervisor."""

    name: IsolationName
    is_root: bool
    own_view: bool  # of the file system, so that the machine's files are hidden

    @property
    def changes_user(self) -> bool:
        """Whether the program runs as a user of its own, which only root can arrange."""
        return self.is_root

    def command(self, supervisor: list[str], folders: Mapping[str, str], disk_bytes: int) -> list[str]:
        """The command line that runs the supervisor in its namespaces."""
        match self.name:
            case "namespaces":
                spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child"]
                user = [] if self.is_root else ["--user", "--map-root-user"]
                return [_found("unshare"), *user, *spaces, "--", *supervisor]
            case "bubblewrap":
                return [_found("bwrap"), *_bubblewrap_options(folders, disk_bytes), "--", *supervisor]
            case "process":
                return supervisor


def candidates() -> list[Isolation]:
    """What may work here, the strongest first."""
    is_root = os.geteuid() == 0
    found = []
    if shutil.which("unshare"):
        found.append(Isolation("namespaces", is_root, True))
    if shutil.which("bwrap") and not is_root:
        found.append(Isolation("bubblewrap", is_root, True))
    return [*found, Isolation("process", is_root, False)]


def _bubblewrap_options(folders: Mapping[str, str], disk_bytes: int) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "sandbox"]
    options += ["--cap-add", "CAP_SETPCAP", "--proc", "/proc", "--dev", "/dev"]
    options += ["--size", str(disk_bytes), "--tmpfs", "/tmp"]
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
        options += ["--ro-bind", outside, f"/run/folders/{position}", "--tmpfs", inside]
    return [*options, *(word for path in ("/", *hidden) for word in ("--remount-ro", path))]


def _found(name: str) -> str:
    return shutil.which(name) or name
