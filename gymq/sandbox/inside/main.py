"""The supervisor of one sandboxed program: `main.py SPEC_FD LIFELINE_FD REPORT_FD [GROUP_FD ...]`.

It builds the program's view of the file system, starts it with limits and without privileges, watches it, ends all that
it left running, and reports. It reads no environment.

The lifeline is the reading end of a pipe of which the owner holds the other end: it closes when the owner wants the
end, and also when the owner dies. On it the owner of a session says when a step begins and when it is over.
"""

from __future__ import annotations

import marshal
import os
import sys

from . import kernel, supervisor, view
from .group import ProgramGroup
from .spec import Spec


def main() -> None:
    spec_fd, lifeline_fd, report_fd, *group_fds = map(int, sys.argv[2:])
    with open(spec_fd, "rb") as file:
        spec = Spec(marshal.load(file))
    for fd in (lifeline_fd, report_fd, *group_fds):
        os.set_inheritable(fd, False)
    try:
        kernel.set_undumpable()
        uid = supervisor.own_uid() if spec.changes_user else None
        if spec.builds_view:
            view.build(spec, os.getuid() if uid is None else uid)
        view.fill(spec, uid)
        group = ProgramGroup(group_fds, spec.group_bytes) if group_fds else None
        report = supervisor.supervise(spec, uid, lifeline_fd, group)
    except (OSError, ValueError, MemoryError) as error:
        report = f"failed {type(error).__name__}: {error}"
    os.write(report_fd, report.encode())
