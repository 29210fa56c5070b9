"""Cancelling a run or a task: queued tasks are removed, running ones stopped, and each ends as cancelled.

The mark is a stored message. Processes that work on the run receive it as it is published; later ones read it when they
start.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gymq.bus import Bus, streams
from gymq.bus.stream_follower import StreamFollower
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage, Cancellation

STORING_S = 2.0  # in which a mark that was heard is surely stored

_decode_cancellation = Decoder(Cancellation)


class Cancellations:
    """The cancellations that this process knows of."""

    def __init__(self, bus: Bus, on_cancel: Callable[[str, int | None], None]) -> None:
        """Prepare to watch for cancellations.

        Args:
            on_cancel: called with run and task index (None: all tasks) for each cancellation that arrives.
        """
        self._bus = bus
        self._on_cancel = on_cancel
        self._marks: dict[tuple[str, int | None], float] = {}  # by run and task (None: all), when each was heard last
        self._follower = StreamFollower(bus, streams.RUNS, self._add)

    async def start(self, run: str | None = None) -> None:
        """Subscribe to cancellations from now on, and read those of the past; of one run or of all."""
        await self._follower.start(subjects.CANCELLED.wildcard if run is None else subjects.CANCELLED.of(run))

    def __contains__(self, key: tuple[str, int]) -> bool:
        return (key[0], None) in self._marks or key in self._marks

    async def is_still_cancelled(self, run: str, task_index: int) -> bool:
        """Return whether a task is cancelled by a mark that is still stored, and forget those that are not.

        A run may have been deleted, and opened again under its name.
        """
        for mark in ((run, None), (run, task_index)):
            heard_at = self._marks.get(mark)
            if heard_at is None:
                continue
            if time.monotonic() - heard_at < STORING_S:
                return True
            stored = await self._bus.js.newest(streams.RUNS, subjects.cancelled(*mark))
            if stored is not None or self._marks.get(mark, heard_at) != heard_at:
                return True
            self._marks.pop(mark, None)
        return False

    def _add(self, body: bytes) -> None:
        try:
            cancellation = _decode_cancellation(body)
        except BadMessage:
            return
        run, task_index = cancellation.run, cancellation.task_index
        is_known = not self._marks.keys().isdisjoint({(run, None), (run, task_index)})
        self._marks[run, task_index] = time.monotonic()
        if not is_known:
            self._on_cancel(run, task_index)
