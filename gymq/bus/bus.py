"""The bus: one connection to NATS, with the streams on it."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gymq.bus.client import MendedClient
from gymq.bus.connection import Connection
from gymq.bus.errors import Denied
from gymq.bus.jetstream import JetStream
from gymq.errors import BusError

log = logging.getLogger("gymq.bus")

READ_AGAIN_S = 1.0  # after the first time without an answer; the pause doubles up to 5 s

T = TypeVar("T")


class Bus(Connection):
    """One connection, shared by everything in a process; `js` stores to and reads from its streams."""

    def __init__(self, client: MendedClient, role: str) -> None:
        super().__init__(client, role)
        self.js = JetStream(self)

    async def retry_read(self, read: Callable[[], Awaitable[T]], *, hint: str = "", patience_s: float = math.inf) -> T:
        """Return what `read` returns, calling it again while the server does not answer.

        Args:
            hint: what the caller's user does to resume, for the error.

        Raises:
            Denied: this user may not read it.
            BusError: the connection is closed for good, a stream was deleted, or there was no answer within
                `patience_s`.
        """
        give_up = time.monotonic() + patience_s
        pause_s = READ_AGAIN_S
        while True:
            try:
                self.js.check_streams()
                return await read()
            except Denied:
                raise
            except BusError as error:
                if self.lost.is_set() or self.js.missing or time.monotonic() > give_up:
                    text = self.js.missing or str(error)
                    raise BusError(f"{text}; {hint}" if hint else text) from None
                log.warning("%s; reading again in up to %g s", error, pause_s)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, 5.0)
