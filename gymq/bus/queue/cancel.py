"""Cancelling a run or a task: queued tasks are removed, running ones stopped, and each ends as cancelled.

The mark is a stored message. Processes that work on the run receive it as it is published; later ones read it when they
start.
"""

from __future__ import annotations

from collections.abc import Callable

from gymq.bus import Bus, streams
from gymq.bus.stream_follower import StreamFollower
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage, Cancellation

_decode_cancellation = Decoder(Cancellation)


class Cancellations:
    """The cancellations that this process knows of."""

    def __init__(self, bus: Bus, on_cancel: Callable[[str, int | None], None]) -> None:
        """Prepare to watch for cancellations.

        Args:
            on_cancel: called with run and task index (None: all tasks) for each cancellation that arrives.
        """
        self._on_cancel = on_cancel
        self._runs: set[str] = set()
        self._tasks: set[tuple[str, int]] = set()
        self._follower = StreamFollower(bus, streams.RUNS, self._add)

    async def start(self, run: str | None = None) -> None:
        """Subscribe to cancellations from now on, and read those of the past; of one run or of all."""
        await self._follower.start(subjects.ALL_CANCELLED if run is None else subjects.cancelled_of_run(run))

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key[0] in self._runs or key in self._tasks

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
