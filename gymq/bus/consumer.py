"""One thing after another: the messages of a durable consumer, handed to a coroutine in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gymq.bus.bus import Bus
from gymq.bus.pull import Delivery, Pull
from gymq.errors import BusError
from gymq.processes.background import end_task
from gymq.processes.failing import FailureLogged

log = logging.getLogger("gymq.consumer")


class Consumer:
    """Pulls from a durable consumer and awaits `handle` for each message; `handle` acknowledges.

    What `handle` could not do because the bus failed is delivered again by the server.
    """

    def __init__(
        self, bus: Bus, stream: str, name: str, handle: Callable[[Delivery], Awaitable[None]], *, batch: int = 64
    ) -> None:
        self._bus = bus
        self._name = name
        self._handle = handle
        self._batch = batch
        self._arrived: asyncio.Queue[Delivery] = asyncio.Queue()
        self._pull = Pull(bus, stream, name, self._arrived.put_nowait)
        self._in_flight: Delivery | None = None
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._bus.on_reconnect(self._pull.reset)
        await self._pull.start()
        self._working = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Take no more messages, and requeue unfinished ones, so that another process gets them at once."""
        await self._pull.stop()
        await end_task(self._working)
        with contextlib.suppress(BusError):
            if self._in_flight is not None:
                await self._in_flight.nak()
            while not self._arrived.empty():
                await self._arrived.get_nowait().nak()

    async def _work(self) -> None:
        while True:
            try:
                missing = self._batch - self._pull.outstanding - self._arrived.qsize()
                if missing >= self._batch // 2:
                    await self._pull.ask(missing)
                if self._arrived.empty():
                    async with asyncio.timeout(1.0):
                        delivery = await self._arrived.get()
                else:
                    delivery = self._arrived.get_nowait()
            except TimeoutError:
                continue
            except BusError as error:
                log.warning("%s: cannot ask for messages: %s", self._name, error)
                await asyncio.sleep(1.0)
                continue
            self._in_flight = delivery
            with FailureLogged(log, "%s: message %d will be delivered again", self._name, delivery.sequence):
                try:
                    await self._handle(delivery)
                except BusError as error:
                    log.warning("%s: message %d will be delivered again: %s", self._name, delivery.sequence, error)
            self._in_flight = None
