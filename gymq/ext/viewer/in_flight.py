"""Rollouts in flight: which they are, and the progress of each as its journal shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gymq.bus import Bus, blobs, streams
from gymq.bus.queue.tasks import read_task
from gymq.bus.rpc.tries import decode_reply
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.journal_messages import JournalEntry
from gymq.protocol.messages import BadMessage, BlobRef, Message, Task
from gymq.protocol.subjects import TaskQueueName

_decode_entry = Decoder(JournalEntry, BlobRef)


async def tasks_in_flight(bus: Bus, run: str, seen: dict[str, int] | None = None) -> AsyncIterator[Task]:
    """Yield the tasks of a run that agents have taken and not settled yet.

    A task leaves its stream when it is settled, so one that was delivered and is still there is in flight. Requeued
    tasks are among them.

    Args:
        seen: by queue, the stream sequence up to which tasks were yielded before and are left out; it is updated.

    Raises:
        BusError: the stream cannot be read.
        BadToken: the run's name is not valid.
    """
    seen = {} if seen is None else seen
    of_run = subjects.token(run, "run")
    for info in await streams.consumers(bus.js, streams.TASKS):
        queue = TaskQueueName.of_consumer(info["name"])
        if queue is None or queue.run != of_run:
            continue
        after = seen.get(info["name"], 0)
        async for stored in bus.js.read(streams.TASKS, queue.subject, after=after, batch=64):
            if stored.sequence > info["delivered"]["stream_seq"]:
                break
            seen[info["name"]] = stored.sequence
            try:
                task = await read_task(bus, stored.data)
            except BadMessage:
                continue  # no agent works on it
            yield task


@dataclass(frozen=True)
class RecordedEffect:
    """One effect of a rollout: a reply that its agent got."""

    number: int  # position among the effects of the attempt
    key: str  # what was asked, in short
    reply: Message
    stored_at: str  # RFC 3339


@dataclass
class RolloutProgress:
    """The progress of a rollout in its present attempt. `read` it again for later entries."""

    run: str
    task_index: int
    rollout_index: int
    attempt: int = 0
    worker: str = ""  # the agent process that runs it; empty: it has no journal (yet)
    sequence: int = 0  # of the last entry that was read
    effects: list[RecordedEffect] = field(default_factory=list)

    async def read(self, bus: Bus) -> int | None:
        """Read the entries of the journal that are not known yet.

        Returns:
            The position in `effects` of the first new one; None: there is none.

        Raises:
            BusError: the journal cannot be read.
            BadToken: the run's name is not valid.
        """
        subject = subjects.JOURNAL.of(self.run, self.task_index, self.rollout_index)
        first_new: int | None = None
        async for stored in bus.js.read(streams.JOURNAL, subject, after=self.sequence):
            self.sequence = stored.sequence
            try:
                entry = await blobs.read(bus, stored.data, _decode_entry, "rollout")
                effects = [
                    RecordedEffect(effect.number, effect.key, decode_reply(effect.reply), stored.stored_at)
                    for effect in entry.effects
                ]
            except BadMessage:
                continue  # its agent starts over when it takes the task
            if entry.attempt > self.attempt:
                self.attempt = entry.attempt
                self.effects.clear()
                first_new = 0
            self.worker = entry.worker.partition("/")[0]
            for effect in effects:
                del self.effects[effect.number :]
                self.effects.append(effect)
                first_new = min(effect.number, len(self.effects) if first_new is None else first_new)
            if first_new is None:
                first_new = len(self.effects)
        return first_new
