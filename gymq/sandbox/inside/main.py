"""The supervisor of one sandboxed program: `main.py SPEC_FD LIFELINE_FD REPORT_FD [GROUP_FD ...]`.

It builds the program's view of the file system, starts it with limits and without privileges, watches it, ends all that
it left running, and reports. It reads no environment.

The lifeline is the reading end of a pipe of which the owner holds the other end: it closes when the owner wants the
end, and also when the owner dies. On it the owner of a session says when a step begins and when it is over.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import sys

from . import kernel, supervisor, view
from .group import ProgramGroup
from .spec import Spec


def main() -> None:
    spec_fd, lifeline_fd, report_fd, *group_fds = _low(list(map(int, sys.argv[2:])))
    with open(spec_fd, "rb") as file:
        spec = Spec(marshal.load(file))
    try:
        kernel.set_undumpable()
        uid = supervisor.own_uid() if spec.changes_user else None
        if spec.builds_view:
            view.build(spec, os.getuid() if uid is None else uid)
        view.fill(spec, uid)
        report = supervisor.supervise(
            spec, uid, lifeline_fd, ProgramGroup(group_fds, spec.group_bytes) if group_fds else None
        )
    except (OSError, ValueError, MemoryError) as error:
        report = f"failed {type(error).__name__}: {error}"
    os.write(report_fd, report.encode())


def _low(given: list[int]) -> list[int]:
    """Move the given files to the lowest numbers after the standard streams, and close all others.

    They arrive with the numbers that they had in the owner, which may have thousands.
    """
    low = list(range(3, 3 + len(given)))
    kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, low[-1] + 1) for fd in given]
    for fd, number in zip(kept, low, strict=True):
        os.dup2(fd, number, inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > low[-1]:
            try:
                os.close(int(name))
            except OSError:  # the one by which they were listed
                continue
    return low
