"""Ends a process when its parent ends, in whatever way.

Run as a program, it binds itself to its parent and then becomes another program, see `bound`. That program needs no
code of its own, and the parent needs no code between fork and exec (unsafe in a process with threads).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to SIGKILL this process when its parent ends. Linux only; elsewhere it does nothing.

    SIGKILL because it works on a process that is frozen or busy. The kernel watches the thread that started this
    process, not the whole parent: start it from a thread that lives as long as the parent (the main thread).

    Raises OSError if the kernel refuses.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_pdeathsig = 1  # <linux/prctl.h>
    if libc.prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have ended before the request: then the signal never comes, but the parent is another one now.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def bound(command: Sequence[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Return the command that runs a program which ends with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
