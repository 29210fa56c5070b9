"""The outcomes of rollouts in the stream ROLLOUTS: stored once, found by subject, read in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from gymq.bus import Bus, blobs, streams
from gymq.bus.jetstream import Stored
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import (
    BadMessage,
    BlobRef,
    Failure,
    FailureClass,
    Outcome,
    Stage,
    Task,
    Unresolved,
    VerifiedRollout,
)
from gymq.redaction import redact, without_credentials

log = logging.getLogger("gymq.outcomes")

READ_BATCH = 4096  # outcomes asked for at a time; each request has the server look at all subjects of the run
UNKNOWN_AGENT = "unknown"  # of an outcome that cannot be read

_decode = Decoder(VerifiedRollout, Failure, Unresolved, BlobRef)


class OutcomeStore:
    """Reads and writes outcomes over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._warned: set[int] = set()  # of messages with these stream sequences
        self._sought: list[str] = []  # the subjects of the next request
        self._seeking: asyncio.Task[dict[str, int]] | None = None  # makes it

    async def put(self, outcome: Outcome, *, replaces: int | None, patience_s: float) -> bool:
        """Store an outcome unless there is one already. Safe to repeat.

        Args:
            replaces: stream sequence of the stored failure that this outcome may take the place of.

        Returns:
            False if another attempt was first; then that one counts.

        Raises:
            BusError: not stored within `patience_s`.
            BadMessage: the outcome has no wire form.
        """
        subject = subjects.ROLLOUT.of(*outcome.rollout_id)
        body, num_large = await self._bus.large_bodies.encode_when_room(lambda: without_credentials(encode(outcome)))
        try:
            body = await blobs.fit(self._bus, body, "rollout", outcome.rollout_id)
            last = replaces or 0
            stored = await self._js.publish_or_last(streams.ROLLOUTS, subject, body, last=last, patience_s=patience_s)
            return stored is not None and stored.data == body
        finally:
            self._bus.large_bodies.release(num_large)

    async def find(self, run: str, task_index: int, rollout_index: int) -> Stored | None:
        """Return the stored message of one rollout, not decoded."""
        return await self._js.last(streams.ROLLOUTS, subjects.ROLLOUT.of(run, task_index, rollout_index))

    async def is_settled(self, task: Task) -> bool:
        """Return whether the rollout of a task has an outcome that the task is not to replace."""
        subject = subjects.ROLLOUT.of(*task.rollout_id)
        # Tasks arrive in batches, and a request for each would be a tenth of what a short rollout costs.
        if self._seeking is None or len(self._sought) == 256:
            self._sought = []
            self._seeking = asyncio.create_task(self._seek(self._sought))
        self._sought.append(subject)
        sequence = (await asyncio.shield(self._seeking)).get(subject)
        return sequence is not None and sequence != task.replaces

    async def _seek(self, sought: list[str]) -> dict[str, int]:
        """Return the sequences of what is stored on the subjects that are sought in the same round of the loop."""
        if self._sought is sought:
            self._seeking = None
        last = await self._js.last_of(streams.ROLLOUTS, sought)
        return {subject: stored.sequence for subject, stored in last.items()}

    async def find_outcome(self, run: str, task_index: int, rollout_index: int) -> tuple[int, Outcome] | None:
        """Return the outcome of one rollout, with its stream sequence."""
        stored = await self.find(run, task_index, rollout_index)
        if stored is None:
            return None
        return stored.sequence, await self._outcome(stored, run, task_index, rollout_index)

    async def outcome_of(self, task: Task) -> tuple[int, Outcome] | None:
        """Return the outcome of a task that has one, with its stream sequence; None if it was removed."""
        of = task.rollout_id
        stored = await self._js.last_beyond(task.replaces or 0, streams.ROLLOUTS, subjects.ROLLOUT.of(*of))
        return None if stored is None else (stored.sequence, await self._outcome(stored, *of))

    async def read(
        self, run: str, task_index: int | None = None, *, after: int = 0, batch: int = READ_BATCH
    ) -> AsyncIterator[tuple[int, Outcome]]:
        """Yield the outcomes of a run, or of one of its tasks, with their stream sequences, up to now.

        Args:
            after: the stream sequence after which to begin.
            batch: how many are fetched at a time; use few where few will be looked at.
        """
        subject = subjects.ROLLOUT.below(run) if task_index is None else subjects.ROLLOUT.of(run, task_index)
        async for sequence, outcome in self._read(subject, after, batch):
            if outcome is not None:
                yield sequence, outcome

    async def subjects(self, run: str) -> list[str]:
        """Return the subjects on which a run has outcomes."""
        return list(await self._js.count_by_subject(streams.ROLLOUTS, subjects.ROLLOUT.below(run)))

    async def read_all(self, *, after: int) -> AsyncIterator[tuple[int, Outcome | None]]:
        """Yield the outcomes of all runs beyond a stream sequence, with their sequences, up to now.

        None stands for a message whose subject is not of a rollout, so that a reader's position advances past it.
        """
        async for sequence, outcome in self._read(subjects.ALL_ROLLOUTS, after):
            yield sequence, outcome

    async def _read(
        self, subject: str, after: int, batch: int = READ_BATCH
    ) -> AsyncIterator[tuple[int, Outcome | None]]:
        async for stored in self._js.read(streams.ROLLOUTS, subject, after=after, batch=batch):
            where = subjects.RolloutId.of_subject(stored.subject)
            if where is None:
                self._warn(stored, "the subject of no rollout")
            yield stored.sequence, None if where is None else await self._outcome(stored, *where)

    async def _outcome(self, stored: Stored, run: str, task_index: int, rollout_index: int) -> Outcome:
        """Return the outcome; one that is unreadable becomes a failure, so that its run can end and be resumed."""
        try:
            outcome = await self.decode(stored.data)
            if subjects.ROLLOUT.of(*outcome.rollout_id) == stored.subject:
                return outcome
            problem = f"it says that it is {outcome.rollout_id}"
        except BadMessage as error:
            problem = str(error)
        self._warn(stored, f"cannot be read: {problem}")
        return Failure(
            run=run,
            task_index=task_index,
            rollout_index=rollout_index,
            agent=UNKNOWN_AGENT,
            row=b"{}",
            failure_class=FailureClass.NOT_STORABLE,
            stage=Stage.STORE,
            message=f"what is stored at {stored.subject} cannot be read: {problem}",
            retryable=True,
        )

    def _warn(self, stored: Stored, problem: str) -> None:
        """Warn of a message once: to follow a run is to read it again and again."""
        if stored.sequence not in self._warned and len(self._warned) < 1000:
            self._warned.add(stored.sequence)
            log.warning("%s: %s", redact(stored.subject), problem)

    async def decode(self, body: bytes) -> Outcome:
        """Decode the outcome in a stored body, and fetch its blob if need be.

        Raises:
            BadMessage: the body is not a valid outcome.
        """
        outcome: Outcome = await blobs.read(self._bus, body, _decode, "rollout")
        return outcome
