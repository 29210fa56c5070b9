"""Work of a service that is done again and again, whatever fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from gymq.errors import BusError
from gymq.processes.failing import FailureLogged


async def repeat(
    work: Callable[[], Awaitable[object]], log: logging.Logger, failed: str, *, pause_s: float
) -> NoReturn:
    """Do something again and again, with a pause after each time.

    Args:
        log: gets a line when it fails; while the bus fails in the same way, the first time only.
        failed: the beginning of that line.
        pause_s: seconds from one end to the next begin.
    """
    problem = ""
    while True:
        with FailureLogged(log, failed):
            try:
                await work()
                problem = ""
            except BusError as error:
                if str(error) != problem:
                    log.warning("%s: %s", failed, error)
                problem = str(error)
        await asyncio.sleep(pause_s)
