"""Processes kept running: each is started again when it ends, with a growing pause."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import NoReturn

from gymq.errors import GymqError

log = logging.getLogger("gymq.launch")

SHORTEST_PAUSE_S = 0.25  # before a process that ended is started again; doubled each time
LONGEST_PAUSE_S = 10.0


async def keep_running(
    name: str,
    ended: Callable[[], Awaitable[str]],
    start: Callable[[], Awaitable[None]],
    *,
    stays_up_s: float = 60.0,
) -> NoReturn:
    """Start a process again whenever it ends, after a pause that grows as long as it does not stay up.

    The log has a line for the first ends, and then for each that doubles their number, until it stays up.

    Args:
        ended: waits until the process ends; returns how it did.
        start: starts it and waits until it serves; may raise GymqError or, where the system lacks something at the
            moment (descriptors, processes, disk), OSError.
        stays_up_s: seconds after which it is taken to stay up, so that the pause is short again.
    """
    loop = asyncio.get_running_loop()
    pause_s = SHORTEST_PAUSE_S
    times = 0
    while True:
        started = loop.time()
        how = await ended()
        if loop.time() - started > stays_up_s:
            pause_s, times = SHORTEST_PAUSE_S, 0
        times += 1
        if times <= 3 or times & (times - 1) == 0:
            log.warning("%s ended%s, restarting it: %s", name, f" {times} times" if times > 1 else "", how)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                await start()
                break
            except (GymqError, OSError) as error:
                log.error("%s: %s", name, str(error).removeprefix(f"{name}: "))


def shown_status(status: int | None) -> str:
    """Return text such as `exit status 3` or `signal SIGSEGV`."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
