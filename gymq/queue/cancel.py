"""Cancelling a run or a task: queued tasks are removed, running ones stopped, and each ends as cancelled.

The mark is a stored message. Processes that work on the run receive it as it is published; later ones read it when they
start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gymq.bus import Bus, BusError, streams
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, Cancellation, decoder

_decode_cancellation = decoder(Cancellation)


class Cancellations:
    """The cancellations that this process knows of."""

    def __init__(self, bus: Bus, on_cancel: Callable[[str, int | None], None]) -> None:
        """Prepare to watch for cancellations.

        Args:
            on_cancel: called with run and task index (None: all tasks) for each cancellation that arrives.
        """
        self._bus = bus
        self._on_cancel = on_cancel
        self._runs: set[str] = set()
        self._tasks: set[tuple[str, int]] = set()
        self._subject = ""
        self._last_sequence = 0  # of those read
        self._reading: asyncio.Task[None] | None = None

    async def start(self, run: str | None = None) -> None:
        """Subscribe to cancellations from now on, and read those of the past; of one run or of all."""
        self._subject = subjects.ALL_CANCELLED if run is None else subjects.cancelled_of_run(run)
        await self._bus.subscribe(self._subject, self._on_message)
        self._bus.on_reconnect(self._read_again)
        await self._read()

    def _read_again(self) -> None:
        # What was published while this process was away is not heard any more.
        self._reading = asyncio.create_task(self._read_with_retries())

    async def _read_with_retries(self) -> None:
        with suppress(BusError):  # the connection is closed for good
            await self._bus.retry_read(self._read)

    async def _read(self) -> None:
        async for stored in self._bus.js.read(streams.RUNS, self._subject, after=self._last_sequence):
            self._add(stored.data)
            self._last_sequence = stored.sequence

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key[0] in self._runs or key in self._tasks

    async def _on_message(self, message: Any) -> None:
        self._add(message.data)

    def _add(self, body: bytes) -> None:
        try:
            cancellation = _decode_cancellation(body)
        except BadMessage:
            return
        run, task_index = cancellation.run, cancellation.task_index
        if run in self._runs or (run, task_index) in self._tasks:
            return
        if task_index is None:
            self._runs.add(run)
        else:
            self._tasks.add((run, task_index))
        self._on_cancel(run, task_index)
