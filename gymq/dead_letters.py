"""Dead letters: what was given up, with one sentence why, kept for a person to look at, give back or drop.

Rollouts that end without a reward are here, and whatever could not become a rollout at all. `gymq.replay` gives a
letter back; removing a run removes its letters.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from gymq import parts, streams, subjects
from gymq.bus import Bus
from gymq.jetstream import JetStream, Stored
from gymq.messages import BadMessage, Claim, DeadLetter, FailureClass, Rollout, Task, decoder, encode
from gymq.outcome_store import OutcomeStore

log = logging.getLogger("gymq.dead_letters")

PATIENCE_S = 60.0
MAX_REASON_CHARS = 4000
MAX_UNREADABLE_BYTES = 1 << 20  # of a body that nobody can read and that is therefore never given back

_END_OF_TIME = 1e11  # Unix time, seconds: the year 5138

_decode = decoder(DeadLetter)
_decode_claim = decoder(Claim)


async def bury(
    bus: Bus,
    source: str,
    subject: str,
    reason: str,
    body: bytes,
    *,
    sequence: int,
    of: tuple[str, int, int] | None = None,
) -> None:
    """Store a dead letter about a message that was taken from the stream TASKS. Safe to repeat.

    Args:
        source: which part of gymq gave up: intake, agent, janitor.
        subject: where the body had been published.
        sequence: stream sequence of the message.
        of: run, task index and rollout index, where the body could be read that far. Without it the letter belongs to
            no run, and only the beginning of a large body is kept.

    Raises:
        BusError: not stored.
    """
    log.warning("dead letter from %s: %s", subject, reason)
    kept = body[:MAX_UNREADABLE_BYTES] if of is None else body
    letter = DeadLetter(subject=subject, reason=reason[:MAX_REASON_CHARS], body=kept, at=time.time())
    await _store(bus, source, letter, of, message_id=f"{streams.TASKS}/{sequence}")


async def bury_failure(bus: Bus, source: str, task: Task, subject: str, body: bytes) -> None:
    """Bury a rollout whose stored outcome is a failure. Safe to repeat: there is one letter for each stored failure.

    Nothing happens if it has a reward by now or was cancelled.

    Args:
        subject: where the task had been published.
        body: of the task, as published.

    Raises:
        BusError: not stored.
    """
    of = (task.run, task.task_index, task.rollout_index)
    found = await OutcomeStore(bus).find_outcome(*of)
    if found is None:
        return
    sequence, outcome = found
    if isinstance(outcome, Rollout) or outcome.failure_class is FailureClass.CANCELLED:
        return
    letter = DeadLetter(
        subject=subject,
        reason=outcome.message[:MAX_REASON_CHARS],
        body=body,
        at=time.time(),
        rollout="{}/{}/{}".format(*of),
        failure_class=outcome.failure_class,
        stage=outcome.stage,
    )
    await _store(bus, source, letter, of, message_id=f"{letter.rollout}/{sequence}")


async def _store(
    bus: Bus, source: str, letter: DeadLetter, of: tuple[str, int, int] | None, *, message_id: str
) -> None:
    message = encode(letter)
    if of is None:
        where = subjects.dead_letters(source)
    else:
        where = subjects.dead_letters_with_run(source, of[0])
        if len(message) > bus.max_body_bytes:
            below = subjects.rollout_parts(*of, f"dead-{parts.digest(letter.body)[:32]}")
            claim = await parts.put(bus, letter.body, below)
            message = encode(msgspec.structs.replace(letter, body=claim))
    await JetStream(bus).store_surely(where, message, {"Nats-Msg-Id": message_id}, patience_s=PATIENCE_S)


@dataclass(frozen=True)
class Buried:
    """A dead letter and its number: its sequence in the stream."""

    number: int
    letter: DeadLetter


class DeadLetters:
    """Reads and removes dead letters, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = JetStream(bus)

    async def body(self, letter: DeadLetter) -> bytes:
        """What was published, fetched from its parts if need be.

        Raises:
            BadMessage: the parts are gone.
            BusError: they cannot be read.
        """
        try:
            claim = _decode_claim(letter.body)
        except BadMessage:
            return letter.body
        return await parts.get(self._bus, claim, "task", "rollout")

    async def find(self, number: int) -> Buried | None:
        """The letter of a number; None if there is none (any more).

        Raises:
            BusError: the stream cannot be read.
        """
        letters = self._js.read(streams.DEAD_LETTERS, subjects.ALL_DEAD_LETTERS, after=number - 1, batch=1)
        stored = await anext(letters, None)
        return _buried(stored) if stored is not None and stored.sequence == number else None

    async def read(self, run: str | None = None) -> AsyncIterator[Buried]:
        """The letters that are there now, oldest first; of one run, or all.

        Raises:
            BusError: the stream cannot be read.
        """
        _, last = await self._range()
        async for stored in self._js.read(streams.DEAD_LETTERS, _subject(run)):
            if stored.sequence > last:
                return
            yield _buried(stored)

    async def newest(self, limit: int, run: str | None = None) -> list[Buried]:
        """The newest letters, at most `limit`, oldest first; of one run, or all.

        Raises:
            BusError: the stream cannot be read.
        """
        first, last = await self._range()
        span = limit
        while True:
            after = max(first - 1, last - span)
            found: deque[Stored] = deque(maxlen=limit)
            async for stored in self._js.read(streams.DEAD_LETTERS, _subject(run), after=after):
                found.append(stored)
            if len(found) == limit or after == first - 1:
                return [_buried(stored) for stored in found]
            span *= 8  # there are letters of other runs in between, or gaps where some were removed

    async def remove(self, number: int) -> None:
        """Remove one letter, if it is there.

        Raises:
            BusError
        """
        await streams.remove_message(self._js, streams.DEAD_LETTERS, number)

    async def remove_all(self, run: str | None = None) -> int:
        """Remove all letters, or those of one run; how many there were.

        Raises:
            BusError
        """
        query = {"filter": _subject(run)}
        answer = await self._js.api(f"STREAM.PURGE.{streams.DEAD_LETTERS}", query, timeout_s=60.0)
        return int(answer["purged"])

    async def _range(self) -> tuple[int, int]:
        """First and last stream sequence."""
        state = (await self._js.api(f"STREAM.INFO.{streams.DEAD_LETTERS}"))["state"]
        return state["first_seq"], state["last_seq"]


def _subject(run: str | None) -> str:
    return subjects.ALL_DEAD_LETTERS if run is None else subjects.dead_letters_of_run(run)


def _buried(stored: Stored) -> Buried:
    """The letter in a stored message; anybody may have published anything there."""
    try:
        letter: DeadLetter = _decode(stored.data)
        if not 0 <= letter.at < _END_OF_TIME:
            raise BadMessage(f"`at` is no time: {letter.at}")
    except BadMessage as error:
        letter = DeadLetter(subject=stored.subject, reason=f"unreadable dead letter: {error}", body=stored.data, at=0.0)
    return Buried(stored.sequence, letter)
