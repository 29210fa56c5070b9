"""The outcomes of rollouts in the stream ROLLOUTS: stored once, found by subject, read in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from gymq import parts, streams, subjects
from gymq.bus import Bus
from gymq.jetstream import WRONG_LAST_SEQUENCE, JetStream, JetStreamError, Stored
from gymq.messages import (
    BadMessage,
    Claim,
    Failure,
    FailureClass,
    Outcome,
    Rollout,
    Stage,
    Task,
    Unresolved,
    decoder,
    encode,
)
from gymq.redaction import redact, without_credentials

log = logging.getLogger("gymq.outcomes")

READ_BATCH = 4096  # outcomes asked for at a time; each request has the server look at all subjects of the run
MOST_WARNINGS = 1000  # of one reader, about messages that it cannot read

_decode_stored = decoder(Rollout, Failure, Unresolved, Claim)
_decode_outcome = decoder(Rollout, Failure, Unresolved)


class OutcomeStore:
    """Reads and writes outcomes over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = JetStream(bus)
        self._warned: set[int] = set()  # of messages with these stream sequences

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
        subject = subjects.rollout(outcome.run, outcome.task_index, outcome.rollout_index)
        body = without_credentials(encode(outcome))
        if len(body) > self._bus.max_body_bytes:
            digest = parts.digest(body)[:32]
            below = subjects.rollout_parts(outcome.run, outcome.task_index, outcome.rollout_index, digest)
            body = await parts.put(self._bus, body, below)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(replaces or 0)}
        try:
            await self._js.store_surely(subject, body, headers, patience_s=patience_s)
        except JetStreamError as error:
            if error.code != WRONG_LAST_SEQUENCE:
                raise
            # It may be our own, stored by a try whose acknowledgement was lost.
            stored = await self._js.last(streams.ROLLOUTS, subject)
            return stored is not None and stored.data == body
        return True

    async def find(self, run: str, task_index: int, rollout_index: int) -> Stored | None:
        """The stored message of one rollout, not decoded."""
        return await self._js.last(streams.ROLLOUTS, subjects.rollout(run, task_index, rollout_index))

    async def settles(self, task: Task) -> bool:
        """Whether the rollout of a task has an outcome that the task is not to replace."""
        stored = await self.find(task.run, task.task_index, task.rollout_index)
        return stored is not None and stored.sequence != task.replaces

    async def find_outcome(self, run: str, task_index: int, rollout_index: int) -> tuple[int, Outcome] | None:
        """The outcome of one rollout, with its stream sequence."""
        stored = await self.find(run, task_index, rollout_index)
        return (
            None if stored is None else (stored.sequence, await self._outcome(stored, run, task_index, rollout_index))
        )

    async def read(self, run: str, *, after: int = 0, batch: int = READ_BATCH) -> AsyncIterator[tuple[int, Outcome]]:
        """The outcomes of a run beyond a stream sequence, with their sequences, up to now.

        Args:
            batch: how many are asked for at a time; few where few will be looked at.
        """
        async for sequence, outcome in self._read(subjects.rollouts_of_run(run), after, batch):
            if outcome is not None:
                yield sequence, outcome

    async def read_all(self, *, after: int) -> AsyncIterator[tuple[int, Outcome | None]]:
        """Yield the outcomes of all runs beyond a stream sequence, with their sequences, up to now.

        None stands for a message on the subject of no rollout, so that a reader's position goes on past it.
        """
        async for sequence, outcome in self._read(subjects.ALL_ROLLOUTS, after):
            yield sequence, outcome

    async def read_task(self, run: str, task_index: int) -> AsyncIterator[tuple[int, Outcome]]:
        """The outcomes of one task."""
        async for sequence, outcome in self._read(subjects.rollouts_of_task(run, task_index), 0):
            if outcome is not None:
                yield sequence, outcome

    async def _read(
        self, subject: str, after: int, batch: int = READ_BATCH
    ) -> AsyncIterator[tuple[int, Outcome | None]]:
        async for stored in self._js.read(streams.ROLLOUTS, subject, after=after, batch=batch):
            where = subjects.rollout_of(stored.subject)
            if where is None:
                self._warn(stored, "the subject of no rollout")
            yield stored.sequence, None if where is None else await self._outcome(stored, *where)

    async def _outcome(self, stored: Stored, run: str, task_index: int, rollout_index: int) -> Outcome:
        """The outcome; one that nobody can read is a failure, so that its run can end and a resume replaces it."""
        try:
            outcome = await self.decode(stored.data)
            if subjects.rollout(outcome.run, outcome.task_index, outcome.rollout_index) == stored.subject:
                return outcome
            problem = f"it says that it is {outcome.run}/{outcome.task_index}/{outcome.rollout_index}"
        except BadMessage as error:
            problem = str(error)
        self._warn(stored, f"cannot be read: {problem}")
        return Failure(
            run=run,
            task_index=task_index,
            rollout_index=rollout_index,
            agent="unknown",
            row=b"{}",
            failure_class=FailureClass.NOT_STORABLE,
            stage=Stage.STORE,
            message=f"what is stored at {stored.subject} cannot be read: {problem}",
            retryable=True,
        )

    def _warn(self, stored: Stored, problem: str) -> None:
        """Warn of a message once: to follow a run is to read it again and again."""
        if stored.sequence not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(stored.sequence)
            log.warning("%s: %s", redact(stored.subject), problem)

    async def decode(self, body: bytes) -> Outcome:
        """The outcome in a stored body, fetched from its parts if need be.

        Raises:
            BadMessage, BusError
        """
        message: Outcome | Claim = _decode_stored(body)
        if isinstance(message, Claim):
            outcome: Outcome = _decode_outcome(await parts.get(self._bus, message, "rollout"))
            return outcome
        return message
