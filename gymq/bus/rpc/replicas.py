"""Number the replicas of a model, so that they can divide what they have only once, such as a rate limit.

Each replica receives the loads of all. All of them number the live ones by their names, so they come to the same result
without asking each other. A replica counts when it receives its own load: one that is cut off receives nothing, and
does not conclude that it is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gymq.bus import Bus, Msg
from gymq.bus.rpc.routing import EXPIRES_S
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage
from gymq.protocol.replica_messages import Load

LISTEN_S = 2.0  # until every other has reported its load, heard this one and made room

_decode = Decoder(Load)


class Replicas:
    """Reports its share to one replica of a model."""

    def __init__(self, bus: Bus, model: str, worker: str, share: Callable[[int, int], None]) -> None:
        """Prepare to report this replica's share.

        Args:
            share: called with the number of this replica and that of all, first 0 and 0; see `Model.share`.
        """
        self._bus = bus
        self._model = model
        self._worker = worker
        self._on_share = share
        self._last_seen: dict[str, float] = {}  # by replica, when; on the event loop's clock
        self._share = (0, 0)
        self._since = 0.0

    async def start(self) -> None:
        """Listen from now on."""
        self._since = asyncio.get_running_loop().time()
        self._on_share(*self._share)
        await self._bus.subscribe(subjects.LOAD.of(self._model), self._on_load)

    async def _on_load(self, message: Msg) -> None:
        try:
            worker = _decode(message.data).worker
        except BadMessage:
            return
        now = asyncio.get_running_loop().time()
        self._last_seen[worker] = now
        if worker == self._worker and now - self._since >= LISTEN_S:
            self._update_share(now)

    def _update_share(self, now: float) -> None:
        self._last_seen = {worker: seen for worker, seen in self._last_seen.items() if now - seen <= EXPIRES_S}
        share = sorted(self._last_seen).index(self._worker), len(self._last_seen)
        if share != self._share:
            self._share = share
            self._on_share(*share)
