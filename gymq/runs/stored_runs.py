"""The runs that a cluster has stored, and how far each is."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gymq.bus import Bus, streams
from gymq.bus.jetstream import Stored
from gymq.bus.queue.client import QueueClient
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Run

_decode_run = Decoder(Run)

log = logging.getLogger("gymq.runs")


class Runs:
    """Reads what is stored about runs, over one bus.

    Its methods raise BusError where the server does not answer, and BadToken where the name of a run is not valid.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._queue = QueueClient(bus)

    async def records(self) -> list[Run]:
        """Return all runs, the newest first. A run with an unreadable record is left out; it continues all the same."""
        found = [_record(stored) async for stored in self._js.read(streams.RUNS, subjects.RUN.wildcard)]
        return sorted((record for record in found if record is not None), key=lambda record: -record.created_at)

    async def record(self, run: str) -> Run | None:
        """Return what was stored at the start of a run; None if its record is missing or unreadable."""
        stored = await self._js.last(streams.RUNS, subjects.RUN.of(run))
        return None if stored is None else _record(stored)

    async def change(self, run: str, change: Callable[[Run | None], Run]) -> Run:
        """Store a changed record of a run, and return it.

        Args:
            change: makes it from what is stored, once more if that has changed meanwhile.
        """
        subject = subjects.RUN.of(run)
        while True:
            stored = await self._js.last(streams.RUNS, subject)
            record = None if stored is None else _record(stored)
            changed = change(record)
            last = 0 if stored is None else stored.sequence
            if changed == record or await self._js.publish_if_last(
                subject, encode(changed), last=last, patience_s=30.0
            ):
                return changed

    async def num_stored(self, run: str) -> int:
        """Return how many rollouts of a run have an outcome."""
        return await self._js.count(streams.ROLLOUTS, subjects.ROLLOUT.below(run))

    async def exists(self, run: str) -> bool:
        """Return whether anything is known of a run: its record, an outcome, or a task in the queue."""
        if await self.record(run) is not None or await self.num_stored(run):
            return True
        return bool(await self._queue.num_queued(run))

    async def delete_tasks_of_others(self, config_digest: str, *, resumed: str | None = None) -> None:
        """Remove the queued tasks of collections that were interrupted and have another configuration than this one.

        Workers of this configuration would answer them with another policy, or verify them differently. A collection
        that is resumed submits what is missing again. Tasks of other programs stay: nobody would submit them again.

        Args:
            resumed: the run that is about to be resumed; its tasks stay, and with them how far its rollouts are.
        """
        runs: set[str] = set()
        for queues in (subjects.TASK.wildcard, subjects.URGENT_TASK.wildcard):
            runs |= {subject.split(".")[2] for subject in await self._js.count_by_subject(streams.TASKS, queues)}
        for run in runs - {resumed}:
            record = await self.record(run)
            if record is not None and record.fingerprint and record.fingerprint.partition("/")[2] != config_digest:
                await streams.delete_tasks(self._js, run)

    async def last_sequence(self, run: str) -> int:
        """Return the stream sequence of the latest outcome of a run that has one."""
        query = {"last_by_subj": subjects.ROLLOUT.below(run)}
        answer = await self._js.api(f"STREAM.MSG.GET.{streams.ROLLOUTS}", query)
        return int(answer["message"]["seq"])


def _record(stored: Stored) -> Run | None:
    try:
        record: Run = _decode_run(stored.data)
    except BadMessage as error:
        log.warning("%s cannot be read: %s", stored.subject, error)
        return None
    return record
