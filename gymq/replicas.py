"""Which of the replicas of a model this one is, so that they can divide what they have only once, such as a rate limit.

Replicas hear each other's loads. All of them number those that live by their names, so they come to the same result
without asking anybody. A replica takes stock when it hears itself: one that is cut off hears nothing, and does not
believe that it is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nats.aio.msg import Msg

from gymq import subjects
from gymq.bus import Bus
from gymq.messages import BadMessage, Load, decoder

EXPIRES_S = 3.0  # a replica that has told nothing for so long is gone
LISTEN_S = 2.0  # until every other has told its load, and has heard this one and made room

_decode = decoder(Load)


class Replicas:
    """Tells one replica of a model its share."""

    def __init__(self, bus: Bus, model: str, worker: str, share: Callable[[int, int], None]) -> None:
        """
        Args:
            share: is given the number of this replica and that of all, first 0 and 0; see `Model.share`.
        """
        self._bus = bus
        self._model = model
        self._worker = worker
        self._tell = share
        self._heard: dict[str, float] = {}  # by replica, when; on the event loop's clock
        self._share = (0, 0)
        self._since = 0.0

    async def start(self) -> None:
        """Listen from now on."""
        self._since = asyncio.get_running_loop().time()
        self._tell(*self._share)
        await self._bus.subscribe(subjects.load(self._model), self._on_load)

    async def _on_load(self, message: Msg) -> None:
        try:
            worker = _decode(message.data).worker
        except BadMessage:
            return
        now = asyncio.get_running_loop().time()
        self._heard[worker] = now
        if worker == self._worker and now - self._since >= LISTEN_S:
            self._take_stock(now)

    def _take_stock(self, now: float) -> None:
        self._heard = {worker: heard for worker, heard in self._heard.items() if now - heard <= EXPIRES_S}
        share = sorted(self._heard).index(self._worker), len(self._heard)
        if share != self._share:
            self._share = share
            self._tell(*share)
