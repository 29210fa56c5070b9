"""The journal of one rollout: what its agent had done, so that another process goes on where the first one died.

Each entry names the stream sequence of the entry before it, and the server refuses it if another came in between. An
agent that was taken for dead and comes back is thus stopped at its next entry. Replies of a model and of stateless
workers are written before anything else happens. Replies of a session wait for the next entry: its worker answers a
repeated call from memory.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence

from gymq import parts, streams, subjects
from gymq.bus import Bus, BusError
from gymq.calls import decode_reply
from gymq.jetstream import WRONG_LAST_SEQUENCE, JetStream, JetStreamError
from gymq.messages import (
    BadMessage,
    Claim,
    Effect,
    FailureClass,
    JournalEntry,
    Message,
    Stage,
    Task,
    decoder,
    encode,
)
from gymq.outcomes import RolloutError

log = logging.getLogger("gymq.journal")

PATIENCE_S = 60.0
DROPPED_TTL = "60s"

_decode_entry = decoder(JournalEntry, Claim)


class Fenced(BusError):
    """Another agent process has taken the rollout over."""


class DiedAlone(RolloutError):
    """The agent process died while it worked on this rollout and on nothing else."""

    def __init__(self) -> None:
        text = "an agent process died while it worked on this task and on nothing else"
        super().__init__(FailureClass.REDELIVERED_TOO_OFTEN, text, stage=Stage.QUEUE)


class Journal:
    """Records the effects of one rollout, and answers those that are recorded already."""

    def __init__(self, bus: Bus, task: Task, worker: str) -> None:
        self._bus = bus
        self._js = JetStream(bus)
        self._where = (task.run, task.task_index, task.rollout_index)
        self._subject = subjects.journal(*self._where)
        self._replaces = task.replaces
        # With a mark of its own: two holders in one process may write the very same.
        self._worker = f"{worker}/{secrets.token_hex(4)}"
        self._last_sequence = 0
        self._recorded: list[Effect] = []
        self._unwritten: list[Effect] = []
        self._next = 0
        self.attempt = 0
        self.session: str | None = None  # where the rollout's session was moved to
        self.num_replayed = 0

    async def take_over(self, *, alone: bool = False) -> None:
        """Read what an earlier delivery of the task left, and fence off whoever may still be writing.

        What an earlier task for the same rollout left is passed over.

        Args:
            alone: whether the process works on nothing else from now on.

        Raises:
            BusError: the stream cannot be read or written.
            Fenced: somebody else took over at the same moment.
            DiedAlone
        """
        died_alone = False
        async for stored in self._js.read(streams.JOURNAL, self._subject):
            self._last_sequence = stored.sequence
            try:
                entry = _decode_entry(stored.data)
                if isinstance(entry, Claim):
                    entry = _decode_entry(await parts.get(self._bus, entry, "rollout"))
            except BadMessage as error:
                log.warning("journal of %s: %s; it starts anew", self._subject, error)
                self._forget()
                continue
            if entry.replaces != self._replaces:
                continue
            died_alone = died_alone or entry.alone
            if entry.attempt > self.attempt:
                self._forget()
                self.attempt = entry.attempt
            for effect in entry.effects:
                del self._recorded[effect.number :]
                self._recorded.append(effect)
            self.session = entry.session or self.session
        if self._last_sequence or alone:
            await self._write(self._entry(alone=alone))
        if died_alone:
            raise DiedAlone

    async def start_attempt(self, attempt: int) -> None:
        """Begin a new attempt; what was recorded does not count any more.

        Raises:
            BusError, Fenced
        """
        self._forget()
        self.attempt = attempt
        await self._write(self._entry())

    async def effect(self, key: str, in_session: bool, perform: Callable[[], Awaitable[Message]]) -> Message:
        """The reply of the next effect: the recorded one, or that of `perform`, which is then recorded.

        Args:
            key: what is asked, in short. A replay that asks something else than was recorded starts a journal of
                its own from there.
            in_session: whether the worker answers a repeated call from memory.

        Raises:
            BusError, Fenced: not recorded.
        """
        number = self._next
        if number < len(self._recorded):
            recorded = self._recorded[number]
            if recorded.key == key:
                self._next += 1
                self.num_replayed += 1
                replayed: Message = decode_reply(recorded.reply)
                return replayed
            log.warning(
                "the agent asks %s where it had asked %s; the rest of the journal is left out", key, recorded.key
            )
            del self._recorded[number:]
        reply = await perform()
        self._next += 1
        effect = Effect(number, key, encode(reply))
        self._recorded.append(effect)
        self._unwritten.append(effect)
        if not in_session:
            await self._flush()
        return reply

    async def moved(self, session: str) -> None:
        """The rollout's session was rebuilt in another worker.

        Raises:
            BusError, Fenced
        """
        self.session = session
        await self._flush()

    async def drop(self) -> None:
        """The rollout has its outcome: forget the journal. A journal that stays is harmless."""
        if not self._last_sequence:
            return
        # A rollup takes the place of all entries in one message, which expires by itself.
        headers = {"Nats-Rollup": "sub", "Nats-TTL": DROPPED_TTL}
        body = encode(self._entry())
        try:
            await self._bus.publish(self._subject, body, headers=headers)
        except BusError as error:
            log.info("journal of %s not dropped: %s", self._subject, error)

    async def _flush(self) -> None:
        effects, self._unwritten = self._unwritten, []
        await self._write(self._entry(effects, self.session))

    def _entry(
        self, effects: Sequence[Effect] = (), session: str | None = None, *, alone: bool = False
    ) -> JournalEntry:
        return JournalEntry(
            attempt=self.attempt,
            worker=self._worker,
            effects=list(effects),
            session=session,
            replaces=self._replaces,
            alone=alone,
        )

    async def _write(self, entry: JournalEntry) -> None:
        body = encode(entry)
        if len(body) > self._bus.max_body_bytes:
            below = subjects.rollout_parts(*self._where, f"journal-{parts.digest(body)[:32]}")
            body = await parts.put(self._bus, body, below)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(self._last_sequence)}
        try:
            ack = await self._js.store_surely(self._subject, body, headers, patience_s=PATIENCE_S)
        except JetStreamError as error:
            if error.code != WRONG_LAST_SEQUENCE:
                raise
            self._last_sequence = await self._sequence_of_own(body)
        else:
            self._last_sequence = ack.seq

    async def _sequence_of_own(self, body: bytes) -> int:
        """The sequence of an entry that was stored although its acknowledgement never came."""
        last = await self._js.last(streams.JOURNAL, self._subject)
        if last is None or last.data != body:
            raise Fenced(f"{self._subject} was taken over")
        return last.sequence

    def _forget(self) -> None:
        self._recorded.clear()
        self._unwritten.clear()
        self._next = 0
        self.session = None
