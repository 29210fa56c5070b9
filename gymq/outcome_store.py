"""The outcomes of rollouts in the stream ROLLOUTS: stored once, found by subject, read in order."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gymq import parts, streams, subjects
from gymq.bus import Bus
from gymq.jetstream import WRONG_LAST_SEQUENCE, JetStream, JetStreamError, Stored
from gymq.messages import Claim, Failure, Outcome, Rollout, Unresolved, decoder, encode

_decode_outcome = decoder(Rollout, Failure, Unresolved, Claim)


class OutcomeStore:
    """Reads and writes outcomes over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = JetStream(bus)

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
        body = encode(outcome)
        if len(body) > self._bus.max_body_bytes:
            digest = parts.digest(body)[:32]
            below = subjects.rollout_parts(outcome.run, outcome.task_index, outcome.rollout_index, digest)
            body = await parts.put(self._bus, body, below)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(replaces or 0)}
        try:
            await self._js.store_surely(subject, body, headers, patience_s=patience_s)
        except JetStreamError as error:
            if error.code == WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def find(self, run: str, task_index: int, rollout_index: int) -> Stored | None:
        """The stored message of one rollout, not decoded."""
        return await self._js.last(streams.ROLLOUTS, subjects.rollout(run, task_index, rollout_index))

    async def read(self, run: str, *, after: int = 0) -> AsyncIterator[tuple[int, Outcome]]:
        """The outcomes of a run beyond a stream sequence, with their sequences, up to now."""
        async for stored in self._js.read(streams.ROLLOUTS, subjects.rollouts_of_run(run), after=after):
            yield stored.sequence, await self.decode(stored.data)

    async def read_task(self, run: str, task_index: int) -> AsyncIterator[tuple[int, Outcome]]:
        """The outcomes of one task."""
        async for stored in self._js.read(streams.ROLLOUTS, subjects.rollouts_of_task(run, task_index)):
            yield stored.sequence, await self.decode(stored.data)

    async def decode(self, body: bytes) -> Outcome:
        """The outcome in a stored body, fetched from its parts if need be.

        Raises:
            BadMessage, BusError
        """
        message = _decode_outcome(body)
        if isinstance(message, Claim):
            message = _decode_outcome(await parts.get(self._bus, message))
        outcome: Outcome = message
        return outcome
