"""Ctrl-C, SIGTERM and the end of its terminal end a command that runs until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def until_interrupted() -> Iterator[Callable[[], object]]:
    """Cancel the block at the first SIGINT, SIGTERM or SIGHUP; the second one interrupts its cleanup too.

    Yields what cancels it as well.
    """
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) == signal.SIG_DFL:  # `nohup` has it ignored
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        yield task.cancel
