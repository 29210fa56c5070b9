"""Dead letters: undeliverable messages, each with one sentence why, kept for a person to inspect, requeue or drop.

They are rollouts that ended without a reward, and messages that could not become a rollout at all.
Removing a run removes its letters.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from gymq.bus import Bus, blobs, streams
from gymq.bus.jetstream import Stored
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.messages import MAX_TEXT_CHARS, BadMessage, BlobRef, DeadLetter, FailureClass, Task, VerifiedRollout
from gymq.protocol.subjects import RolloutId

log = logging.getLogger("gymq.dead_letters")

MAX_UNREADABLE_BYTES = 1 << 20  # of a body that cannot be decoded, and is therefore never requeued

_decode = Decoder(DeadLetter)
_decode_ref = Decoder(BlobRef)


async def store_dead_letter(
    bus: Bus,
    source: str,
    subject: str,
    reason: str,
    body: bytes,
    *,
    sequence: int,
    of: RolloutId | None = None,
) -> None:
    """Store a dead letter about a message that was taken from the stream TASKS. Safe to repeat.

    Args:
        source: which part of gymq gave up: intake, agent, janitor.
        subject: where the body had been published.
        sequence: stream sequence of the message.
        of: the rollout, where the body could be read that far. Without it the letter belongs to
            no run, and only the beginning of a large body is kept.
    """
    log.warning("dead letter from %s: %s", subject, reason)
    kept = body[:MAX_UNREADABLE_BYTES] if of is None else body
    letter = DeadLetter(subject=subject, reason=reason[:MAX_TEXT_CHARS], body=kept, at=time.time())
    await _store(bus, source, letter, of, message_id=f"{streams.TASKS}/{sequence}")


async def dead_letter_failure(bus: Bus, source: str, task: Task, subject: str, body: bytes) -> None:
    """Dead-letter a rollout whose stored outcome is a failure. Idempotent: there is one letter for each stored failure.

    Nothing happens if it has a reward by now or was cancelled.

    Args:
        subject: where the task had been published.
        body: of the task, as published.
    """
    of = task.rollout_id
    stored = await OutcomeStore(bus).outcome_of(task)
    if stored is None:
        return
    sequence, outcome = stored
    if isinstance(outcome, VerifiedRollout) or outcome.failure_class is FailureClass.CANCELLED:
        return
    letter = DeadLetter(
        subject=subject,
        reason=outcome.message[:MAX_TEXT_CHARS],
        body=body,
        at=time.time(),
        rollout=str(of),
        failure_class=outcome.failure_class,
        stage=outcome.stage,
    )
    await _store(bus, source, letter, of, message_id=f"{letter.rollout}/{sequence}")


async def _store(bus: Bus, source: str, letter: DeadLetter, of: RolloutId | None, *, message_id: str) -> None:
    message = compressed(encode(letter))
    if of is None:
        where = subjects.DEAD_LETTER.of(source)
    else:
        where = subjects.DEAD_LETTER_OF_RUN.of(source, of.run)
        if len(message) > bus.max_body_bytes:
            ref = await blobs.store(bus, letter.body, "rollout", of, label="dead")
            message = encode(msgspec.structs.replace(letter, body=ref))
    await bus.js.publish_with_retry(where, message, {"Nats-Msg-Id": message_id}, patience_s=60.0)


@dataclass(frozen=True)
class DeadLetterEntry:
    """A dead letter and its number: its sequence in the stream."""

    number: int
    letter: DeadLetter


class DeadLetters:
    """Reads and removes dead letters, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js

    async def body(self, letter: DeadLetter) -> bytes:
        """Return the message as published; its blob is fetched if need be.

        Raises:
            BadMessage: the blob is gone.
        """
        try:
            ref = _decode_ref(letter.body)
        except BadMessage:
            return letter.body
        return await blobs.fetch(self._bus, ref, "task", "rollout")

    async def find(self, number: int) -> DeadLetterEntry | None:
        """Return the dead letter with a number; None if there is none (any more)."""
        letters = self._js.read(streams.DEAD_LETTERS, subjects.ALL_DEAD_LETTERS, after=number - 1, batch=1)
        stored = await anext(letters, None)
        return _entry(stored) if stored is not None and stored.sequence == number else None

    async def read(self, run: str | None = None) -> AsyncIterator[DeadLetterEntry]:
        """Yield the present dead letters of one run, or of all, oldest first."""
        _, last = await self._range()
        async for stored in self._js.read(streams.DEAD_LETTERS, _subject(run)):
            if stored.sequence > last:
                return
            yield _entry(stored)

    async def newest(self, limit: int, run: str | None = None) -> list[DeadLetterEntry]:
        """Return the newest dead letters of one run, or of all: at most `limit`, oldest first."""
        first, last = await self._range()
        span = limit
        while True:
            after = max(first - 1, last - span)
            letters: deque[Stored] = deque(maxlen=limit)
            async for stored in self._js.read(streams.DEAD_LETTERS, _subject(run), after=after):
                letters.append(stored)
            if len(letters) == limit or after == first - 1:
                return [_entry(stored) for stored in letters]
            span *= 8  # there are letters of other runs in between, or gaps where some were removed

    async def remove(self, number: int) -> None:
        """Remove one letter, if it is there."""
        await streams.remove_message(self._js, streams.DEAD_LETTERS, number)

    async def remove_all(self, run: str | None = None) -> int:
        """Remove all letters, or those of one run; return how many there were."""
        query = {"filter": _subject(run)}
        answer = await self._js.api(f"STREAM.PURGE.{streams.DEAD_LETTERS}", query, timeout_s=60.0)
        return int(answer["purged"])

    async def _range(self) -> tuple[int, int]:
        state = (await self._js.api(f"STREAM.INFO.{streams.DEAD_LETTERS}"))["state"]
        return state["first_seq"], state["last_seq"]


def _subject(run: str | None) -> str:
    return subjects.ALL_DEAD_LETTERS if run is None else subjects.DEAD_LETTER_OF_RUN.of(subjects.EACH, run)


def _entry(stored: Stored) -> DeadLetterEntry:
    """Return the dead letter in a stored message, which may hold anything, since any client may publish there."""
    try:
        letter: DeadLetter = _decode(stored.data)
        # The upper limit is the year 5138.
        if not 0 <= letter.at < 1e11:
            raise BadMessage(f"invalid timestamp in `at`: {letter.at}")
    except BadMessage as error:
        letter = DeadLetter(subject=stored.subject, reason=f"unreadable dead letter: {error}", body=stored.data, at=0.0)
    return DeadLetterEntry(stored.sequence, letter)
