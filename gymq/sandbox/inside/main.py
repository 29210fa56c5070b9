"""The supervisor of one sandboxed program: `main.py SPEC_FD LIFELINE_FD REPORT_FD`.

It builds what the program may see, starts it with limits and without privileges, watches it, ends whatever it left
running, and reports. It reads no environment.

The lifeline is the reading end of a pipe of which the owner holds the other end: it closes when the owner wants the
end, and also when the owner dies.
"""

from __future__ import annotations

import marshal
import os
import sys

from . import kernel, supervisor, view
from .spec import Spec


def main() -> None:
    spec_fd, lifeline_fd, report_fd = map(int, sys.argv[-3:])
    with open(spec_fd, "rb") as file:
        spec = Spec(marshal.load(file))
    try:
        kernel.set_undumpable()
        uid = supervisor.own_uid() if spec.changes_user else None
        if spec.builds_view:
            view.build(spec, uid or 0)
        view.fill(spec, uid)
        report = supervisor.supervise(spec, uid, lifeline_fd)
    except (OSError, ValueError, MemoryError) as error:
        report = f"failed {type(error).__name__}: {error}"
    os.write(report_fd, report.encode())
