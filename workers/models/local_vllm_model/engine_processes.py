"""Ends vLLM's processes with the worker that owns them, and keeps the reason why one of them failed.

They outlive the process that started them when it is killed with SIGKILL, and keep the memory of their GPU. vLLM calls
`end_with_the_worker` in each of them, because it is an entry point of the group `vllm.general_plugins`. The worker's
own process sees only that one of them ended; its log has the reason, and so has a file.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
from pathlib import Path

from gymq.workers.models.local_vllm_model.serve_args import OWNED, SOCKETS

from gymq.processes import memory, parent_death


def end_with_the_worker() -> None:
    """Have the kernel kill this process when its parent ends, if a worker started it. Linux only."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and OWNED in os.environ:
        parent_death.die_with_parent(parent.pid)
        # The processes of an engine may hand each other descriptors of GPU memory, which a hidden one cannot.
        memory.hide_memory(False)
        logging.getLogger("vllm").addHandler(_FirstError(logging.ERROR))


def first_error() -> str | None:
    """Return the error that a process of this worker's engine reported first, as `ValueError: reason`, if any did."""
    with contextlib.suppress(OSError):
        return _file().read_text(encoding="utf-8")
    return None


class _FirstError(logging.Handler):
    """Keeps the first exception that vLLM logs: others follow from it."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        if not error:
            return
        with contextlib.suppress(OSError), _file().open("x", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _file() -> Path:
    return Path(os.environ[SOCKETS], "first_error")
