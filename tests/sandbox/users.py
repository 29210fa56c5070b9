"""Commands of this interpreter as root, as root that may not make namespaces, and as an ordinary user."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gymq.sandbox import GIB
from gymq.sandbox.control_groups import ControlGroups

User = Literal["root", "root without CAP_SYS_ADMIN", "an ordinary user"]

REPOSITORY = Path(__file__).parents[2]


def python_as(user: User, *arguments: str) -> list[str]:
    """The command that runs this Python with arguments as a user; the test is skipped where this user cannot."""
    python = [sys.executable, *arguments]
    if os.geteuid() != 0:
        if user != "an ordinary user":
            pytest.skip("only root can become root")
        return python
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        pytest.skip("setpriv and unshare of util-linux are not installed")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this root may not make namespaces")
    become = {
        "root": [],
        "root without CAP_SYS_ADMIN": ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],
        "an ordinary user": ["setpriv", f"--reuid={_uid()}", f"--regid={_uid()}", "--clear-groups"],
    }[user]
    return ["unshare", "--mount", "sh", "-ec", _OPEN, "sh", *_closed(), "--", *become, *python]


@contextlib.contextmanager
def delegated(command: list[str]) -> Iterator[list[str]]:
    """The command of an ordinary user in a control group that this user may divide."""
    try:
        group = ControlGroups.found().make(8 * GIB, 10_000)
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")
    try:
        for folder in group.folders:
            for path in (folder, *folder.iterdir()):
                os.chown(path, _uid(), _uid())
        members = " ".join(str(folder / "cgroup.procs") for folder in group.folders)
        yield ["sh", "-ec", f'for members in {members}; do echo $$ > $members; done; exec "$@"', "sh", *command]
    finally:
        group.remove()


# Other users cannot look into the folders of root, where its Python may be: in a mount namespace of its own, each
# folder gets an open one in its place, with what is needed bound into it. Arguments: pairs of folder and name.
_OPEN = """
while [ "$1" != -- ]; do
    kept=$(mktemp -d)
    mount --rbind "$1/$2" "$kept"
    mount -t tmpfs -o mode=755 open "$1"
    mkdir "$1/$2"
    mount --move "$kept" "$1/$2"
    rmdir "$kept"
    shift 2
done
shift
exec "$@"
"""


def _uid() -> int:
    """One for each process that runs tests, so that limits of processes count no others."""
    return 1_000_000 + os.getpid()


def _closed() -> list[str]:
    """Folders on the way to this Python and this repository that others cannot enter, and the names on the way."""
    pairs: dict[str, str] = {}
    for path in (sys.base_prefix, sys.prefix, os.path.realpath(sys.executable), str(REPOSITORY)):
        way = [*reversed(Path(path).parents), Path(path)]
        for folder, inner in itertools.pairwise(way):
            if folder.stat().st_mode & 0o005 != 0o005:
                if pairs.setdefault(str(folder), inner.name) != inner.name:
                    pytest.skip(f"other users may not enter {folder}")
                break
    return [word for pair in pairs.items() for word in pair]
