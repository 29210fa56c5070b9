"""Processes whose memory no other process of the same user can read."""

from __future__ import annotations

import ctypes
import sys


def hide_memory(is_hidden: bool = True) -> None:
    """Let no other process of this user read the memory, the environment or the descriptors of this one.

    Processes that it forks are hidden too, programs that it starts are not. Linux only; elsewhere it does nothing.

    Raises:
        OSError: the kernel refuses it.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        pr_set_dumpable = 4  # <linux/prctl.h>
        if libc.prctl(pr_set_dumpable, 0 if is_hidden else 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
