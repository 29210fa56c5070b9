"""What a reader may do with a run: cancel it, requeue its failures, describe it, take it along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import DeadLetterEntry, DeadLetters
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.steering import Retuning, steer
from gymq.data.failure_status import StatusError
from gymq.data.jsonl import JsonlError
from gymq.data.run_files import failure_row, output_row
from gymq.errors import UsageError
from gymq.ext.http.errors import not_found, run_not_found
from gymq.ext.shared.requeue import Requeuer, RequeueResult
from gymq.ext.viewer.run_views import MOST_SEARCHED
from gymq.protocol.messages import Outcome, Run, Steering, VerifiedRollout
from gymq.protocol.subjects import RolloutId
from gymq.runs.stored_runs import Runs

Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """What people say about a run."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    tags: Annotated[list[Tag], msgspec.Meta(max_length=20)] = []


class Requeued(msgspec.Struct, frozen=True):
    """What became of a run's dead letters."""

    requeued: int
    rewarded: int  # had a reward by now
    kept: int
    reasons: list[str]  # why letters are kept, each once


class RunActions:
    """Changes runs, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._runs = Runs(bus)

    async def cancel(self, run: str) -> int:
        """Cancel a run, and return how many of its rollouts were queued or in flight.

        Raises:
            StatusError: 404; there is no such run.
            BusError, BadToken
        """
        if not await self._runs.exists(run):
            raise run_not_found(run)
        return await QueueClient(self._bus).cancel(run)

    async def pause(self, run: str, *, paused: bool) -> Steering:
        """Pause a run, or resume it.

        Raises:
            StatusError: 404; there is no such run.
            BusError, BadToken
        """
        return await self._steer(run, paused=paused)

    async def retune(self, run: str, changes: Retuning) -> Steering:
        """Change a run's share of the workers, its priority or its limit; what is not given stays.

        Raises:
            StatusError: 404; there is no such run.
            BusError, BadToken
        """
        return await self._steer(run, **changes.given())

    async def _steer(self, run: str, **changes: Any) -> Steering:
        if not await self._runs.exists(run):
            raise run_not_found(run)
        return await steer(self._bus, run, **changes)

    async def requeue_failures(self, run: str) -> Requeued:
        """Requeue the failed rollouts of a run, at most 200; the page asks again while there are more.

        Raises:
            BusError, BadToken
        """
        return await self._requeue(await DeadLetters(self._bus).newest(200, run))

    async def requeue_rollout(self, rollout: RolloutId) -> Requeued:
        """Requeue a failed rollout, if its failure is among the `MOST_SEARCHED` newest of its run.

        Raises:
            BusError, BadToken
        """
        letters = await DeadLetters(self._bus).newest(MOST_SEARCHED, rollout.run)
        return await self._requeue([entry for entry in letters if entry.letter.rollout == str(rollout)])

    async def _requeue(self, letters: Sequence[DeadLetterEntry]) -> Requeued:
        requeuer = Requeuer(self._bus)
        counts, reasons = dict.fromkeys(RequeueResult, 0), dict[str, int]()
        for entry in letters:
            try:
                counts[await requeuer.requeue(entry)] += 1
            except UsageError as problem:
                reasons[str(problem)] = reasons.get(str(problem), 0) + 1
        return Requeued(
            counts[RequeueResult.AGAIN], counts[RequeueResult.REWARDED], sum(reasons.values()), list(reasons)
        )

    async def describe(self, run: str, description: Description) -> Run:
        """Store a note and tags with the record of a run.

        Raises:
            StatusError: 404; there is no such run.
            BusError, BadToken
        """
        tags = list(dict.fromkeys(description.tags))

        def described(record: Run | None) -> Run:
            if record is None:
                raise not_found(f"run {run} has no record, so it cannot be described")
            return msgspec.structs.replace(record, note=description.note, tags=tags)

        return await self._runs.change(run, described)

    async def lines(self, run: str) -> AsyncIterator[bytes]:
        """Yield the rollouts of a run as the lines of the files that a collection writes, failures included.

        Raises:
            StatusError: 404; it has no rollouts.
            BusError, BadToken
        """
        number = 0
        async for _, outcome in OutcomeStore(self._bus).read(run):
            number += 1
            yield _line(outcome)
        if not number:
            raise not_found(f"run {run} has no rollouts")


def _line(outcome: Outcome) -> bytes:
    if isinstance(outcome, VerifiedRollout):
        return output_row(outcome)
    try:
        return failure_row(outcome, 0)
    except JsonlError:  # it failed because its row is not an object
        return failure_row(msgspec.structs.replace(outcome, row=b"{}"), 0)


def refused_change() -> StatusError:
    """Return the error for a change where the viewer only shows."""
    return StatusError(403, "read_only", "this viewer only shows: it serves a file, or listens for other machines")
