"""Requeue a dead letter: submit its task again, or return a failed rollout to its queue."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.discovery import is_running, not_running
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import DeadLetterEntry, DeadLetters
from gymq.bus.queue.tasks import read_task
from gymq.errors import UsageError
from gymq.execution.services.intake import read_submission
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, DeadLetter, VerifiedRollout
from gymq.protocol.subjects import RolloutId


class RequeueResult(StrEnum):
    """The result of requeueing a dead letter."""

    AGAIN = "again"  # it is on its way
    REWARDED = "needless"  # the rollout has a reward by now


class Requeuer:
    """Requeues dead letters, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._queue = QueueClient(bus, submitter="replay")
        self._letters = DeadLetters(bus)
        self._running: dict[str, bool] = {}
        self._retried: dict[str, set[tuple[RolloutId, int | None]]] = {}  # by run: rollouts, and the failures replaced

    async def requeue(self, entry: DeadLetterEntry) -> RequeueResult:
        """Requeue the task of a dead letter and remove the letter. Idempotent.

        Raises:
            UsageError: it cannot succeed; nothing was changed.
        """
        letter = entry.letter
        if letter.subject == subjects.SUBMISSION.pattern:
            await self._submit_again(entry)
            done = RequeueResult.AGAIN
        elif letter.rollout:
            done = await self._roll_out_again(letter)
        else:
            raise UsageError("it is unreadable, so it can only be dropped")
        await self._letters.remove(entry.number)
        return done

    async def _submit_again(self, entry: DeadLetterEntry) -> None:
        letter = entry.letter
        try:
            body = await self._letters.body(letter)
            _, _, agent = read_submission(body)
        except BadMessage as error:
            raise UsageError(f"it is not a task: {error}") from None
        await self._check_running(agent)
        headers = {"Nats-Msg-Id": f"dead-letter/{entry.number}/{letter.at}"}
        await self._bus.js.publish_with_retry(letter.subject, body, headers, patience_s=30.0)

    async def _roll_out_again(self, letter: DeadLetter) -> RequeueResult:
        try:
            task = await read_task(self._bus, letter.body)
        except BadMessage as error:
            raise UsageError(f"its task cannot be read: {error}") from None
        if await self._is_cancelled(task.run, task.task_index):
            raise UsageError("it was cancelled")
        stored = await self._queue.outcomes.find_outcome(*task.rollout_id)
        if stored is None:
            raise UsageError(f"run {task.run} no longer has an outcome of it")
        sequence, outcome = stored
        if isinstance(outcome, VerifiedRollout):
            return RequeueResult.REWARDED
        await self._check_running(task.agent)
        urgent = letter.subject == subjects.URGENT_TASK.of(task.run, task.agent)
        if (task.rollout_id, sequence) in await self._retried_in(task.run):
            return RequeueResult.AGAIN  # a collection was faster
        task = msgspec.structs.replace(task, replaces=sequence)
        await self._queue.submit(task, urgent=urgent, patience_s=30.0)
        return RequeueResult.AGAIN

    async def _retried_in(self, run: str) -> set[tuple[RolloutId, int | None]]:
        if run not in self._retried:
            self._retried[run] = {(task.rollout_id, task.replaces) async for _, task in self._queue.queued(run)}
        return self._retried[run]

    async def _is_cancelled(self, run: str, task_index: int) -> bool:
        marks = subjects.cancelled(run, None), subjects.cancelled(run, task_index)
        return any([await self._bus.js.newest(streams.RUNS, mark) for mark in marks])

    async def _check_running(self, agent: str) -> None:
        if agent not in self._running:
            self._running[agent] = await is_running(self._bus, agent, "agents", patience_s=0.0)
        if not self._running[agent]:
            raise UsageError(not_running(agent, "agent"))
