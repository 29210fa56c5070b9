"""Stored messages that a process knows at any time: it reads them once, and receives each as it is published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gymq.bus.bus import Bus
from gymq.errors import BusError


class StreamFollower:
    """Hands the messages of a stream on some subjects to a callback, the stored ones and each that is published.

    A body may be handed over twice, and one that the stream then refuses is handed over as well.
    """

    def __init__(self, bus: Bus, stream: str, on_body: Callable[[bytes], None]) -> None:
        self._bus = bus
        self._stream = stream
        self._on_body = on_body
        self._subject = ""
        self._last_sequence = 0  # of those read
        self._reading: asyncio.Task[None] | None = None

    async def start(self, subject: str) -> None:
        """Subscribe to what is published from now on, and read what is stored."""
        await self.listen(subject)
        await self.read()

    async def listen(self, subject: str) -> None:
        """Subscribe to what is published from now on."""
        self._subject = subject
        await self._bus.listen(subject, lambda message: self._on_body(message.data))
        self._bus.on_reconnect(self._read_again)

    async def read(self) -> None:
        """Read what was stored since the last look."""
        async for stored in self._bus.js.read(self._stream, self._subject, after=self._last_sequence):
            self._on_body(stored.data)
            self._last_sequence = stored.sequence

    def _read_again(self) -> None:
        # What was published while this process was away is not heard any more.
        self._reading = asyncio.create_task(self._read_with_retries())

    async def _read_with_retries(self) -> None:
        with suppress(BusError):  # the connection is closed for good
            await self._bus.retry_read(self.read)
