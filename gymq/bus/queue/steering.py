"""How the tasks of a run are taken: its share of the workers, its class, its limit, and whether it is paused.

One stored message holds all of it for a run, so that a change survives every process. Agents receive it as it is
published, and act on it with the next slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gymq.bus import Bus, streams
from gymq.bus.stream_follower import StreamFollower
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Count, Priority, Share, Steering

_decode = Decoder(Steering)


class Retuning(msgspec.Struct, forbid_unknown_fields=True):
    """What is to change of how a run in progress is taken; what is not given stays."""

    share: Share | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    max_in_flight: Count | UnsetType | None = UNSET  # None: no limit

    def given(self) -> dict[str, Any]:
        """Return the changes, as `steer` takes them."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not UNSET}


class Steered:
    """The steering that this process knows of."""

    def __init__(self, bus: Bus, on_change: Callable[[Steering], None]) -> None:
        """Prepare to watch.

        Args:
            on_change: called with each change that arrives.
        """
        self._bus = bus
        self._on_change = on_change
        self._runs: dict[str, Steering] = {}
        self._follower = StreamFollower(bus, streams.RUNS, self._add)

    async def start(self, run: str | None = None) -> None:
        """Subscribe to changes from now on, and read what is stored; of one run or of all."""
        await self._follower.start(subjects.STEERING.wildcard if run is None else subjects.STEERING.of(run))

    async def listen(self) -> None:
        """Subscribe to changes of all runs from now on."""
        await self._follower.listen(subjects.STEERING.wildcard)

    async def read(self) -> None:
        """Read what was stored since the last look."""
        await self._follower.read()

    async def read_again(self, run: str) -> None:
        """Read how a run is steered whose queue was opened: an earlier one of this name may have been deleted."""
        if run in self._runs:
            steering = await read_steering(self._bus, run) or Steering(run=run)
            if steering != self._runs[run]:
                self._runs[run] = steering
                self._on_change(steering)

    def of(self, run: str) -> Steering | None:
        """Return how a run is steered; None: nothing was ever changed."""
        return self._runs.get(run)

    def _add(self, body: bytes) -> None:
        try:
            steering: Steering = _decode(body)
        except BadMessage:
            return
        known = self._runs.get(steering.run)
        # One that is heard may be refused in favour of another with the same number, which is then read.
        if known is None or steering.number >= known.number:
            self._runs[steering.run] = steering
            if known != steering:
                self._on_change(steering)


async def read_steering(bus: Bus, run: str) -> Steering | None:
    """Return how a run is steered; None: nothing was ever changed, or it cannot be read.

    Raises:
        BadToken: the run's name is not valid.
    """
    stored = await bus.js.newest(streams.RUNS, subjects.STEERING.of(run))
    try:
        return None if stored is None else _decode(stored.data)
    except BadMessage:
        return None


async def steer(bus: Bus, run: str, **changes: Any) -> Steering:
    """Change how the tasks of a run are taken, for all agents and until it is changed again.

    Args:
        changes: fields of `Steering`: share, priority, paused, max_in_flight; the others stay.

    Raises:
        BadToken: the run's name is not valid.
    """
    subject = subjects.STEERING.of(run)
    while True:
        stored = await bus.js.newest(streams.RUNS, subject)
        current = Steering(run=run, number=0)
        if stored is not None:
            with suppress(BadMessage):  # of a version that knows more; what it says is lost
                current = _decode(stored.data)
        changed = msgspec.structs.replace(current, **changes)
        if stored is not None and changed == current:
            return current
        changed = msgspec.structs.replace(changed, number=current.number + 1, at=time.time())
        last = 0 if stored is None else stored.sequence
        if await bus.js.publish_if_last(subject, encode(changed), last=last, patience_s=30.0) is not None:
            return changed
