"""Rollouts that are being made: which they are, and what each has done so far as its journal tells."""

from __future__ import annotations

from dataclasses import dataclass, field

from gymq import parts, streams, subjects
from gymq.bus import Bus
from gymq.calls import decode_reply
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Claim, JournalEntry, Message, Task, decoder
from gymq.tasks import read_task

_decode_entry = decoder(JournalEntry, Claim)


async def tasks_in_hand(bus: Bus, run: str, limit: int) -> list[Task]:
    """Tasks of a run that agents have taken and not settled yet, at most `limit`.

    A task leaves its stream when it is settled, so what was delivered and is still there is in hand. What was given
    back and waits again is among them.

    Raises:
        BusError, BadToken
    """
    js = JetStream(bus)
    delivered = await _delivered(js)
    found: list[Task] = []
    for subject in (subjects.urgent_tasks_of_run(run), subjects.tasks_of_run(run)):
        async for stored in js.read(streams.TASKS, subject, batch=min(limit, 64)):
            if len(found) >= limit or stored.sequence > max(delivered.values(), default=0):
                break
            agent = stored.subject.rpartition(".")[2]
            is_urgent = stored.subject.startswith("gym.urgent.")
            consumer = (streams.urgent_consumer if is_urgent else streams.agent_consumer)(agent)
            if stored.sequence > delivered.get(consumer, 0):
                continue
            try:
                found.append(await read_task(bus, stored.data))
            except BadMessage:
                continue  # an agent will bury it
    return found


async def _delivered(js: JetStream) -> dict[str, int]:
    """The stream sequence up to which each queue of tasks was handed out."""
    found: dict[str, int] = {}
    while True:
        page = await js.api(f"CONSUMER.LIST.{streams.TASKS}", {"offset": len(found)})
        found |= {info["name"]: info["delivered"]["stream_seq"] for info in page["consumers"]}
        if not page["consumers"] or len(found) >= page["total"]:
            return found


@dataclass(frozen=True)
class Done:
    """One effect of a rollout: a reply that its agent got."""

    number: int  # position among the effects of the attempt
    key: str  # what was asked, in short
    reply: Message
    stored_at: str  # RFC 3339


@dataclass
class Progress:
    """What a rollout has done in its present attempt. `read` it again for what came since."""

    run: str
    task_index: int
    rollout_index: int
    attempt: int = 0
    worker: str = ""  # who makes it; empty: there is no journal (yet)
    sequence: int = 0  # of the last entry that was read
    done: list[Done] = field(default_factory=list)

    async def read(self, bus: Bus) -> int | None:
        """Read what the journal has beyond what is known.

        Returns:
            From which position in `done` on it is new; None: nothing is.

        Raises:
            BusError, BadToken
        """
        subject = subjects.journal(self.run, self.task_index, self.rollout_index)
        first_new: int | None = None
        async for stored in JetStream(bus).read(streams.JOURNAL, subject, after=self.sequence):
            self.sequence = stored.sequence
            try:
                entry = _decode_entry(stored.data)
                if isinstance(entry, Claim):
                    entry = _decode_entry(await parts.get(bus, entry, "rollout"))
                effects = [
                    Done(effect.number, effect.key, decode_reply(effect.reply), stored.stored_at)
                    for effect in entry.effects
                ]
            except BadMessage:
                continue  # its agent starts anew when it takes over
            if entry.attempt > self.attempt:
                self.attempt = entry.attempt
                self.done.clear()
                first_new = 0
            self.worker = entry.worker.partition("/")[0]
            for effect in effects:
                del self.done[effect.number :]
                self.done.append(effect)
                first_new = min(effect.number, len(self.done) if first_new is None else first_new)
            if first_new is None:
                first_new = len(self.done)
        return first_new
