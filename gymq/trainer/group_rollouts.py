"""The rollouts of groups: submitted as far as they are not stored or queued, followed until each group is complete."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial

from gymq.bus import Bus
from gymq.bus.discovery import is_running, not_running
from gymq.bus.queue.client import SUBMIT_PATIENCE_S, QueueClient
from gymq.data.rows import MaterialisedRow
from gymq.errors import UsageError
from gymq.processes.background import RunningTasks
from gymq.processes.failing import OnFailure
from gymq.protocol import subjects
from gymq.protocol.messages import Outcome, Task
from gymq.protocol.subjects import RolloutId, TaskQueueName
from gymq.trainer.groups import Group
from gymq.trainer.options import RolloutOptions
from gymq.trainer.pending_group import PendingGroup
from gymq.trainer.policy import TrainedPolicy


class GroupRollouts:
    """The groups of one run that are waited for, and its rollouts in the queue."""

    def __init__(self, bus: Bus, queue: QueueClient, run: str, policy: TrainedPolicy) -> None:
        self._bus = bus
        self._queue = queue
        self._run = run
        self._policy = policy
        # By task and rollout index, with the stream sequence of the failure to be replaced.
        self._queued: defaultdict[int, dict[int, int | None]] = defaultdict(dict)
        # Of tasks in the queue: which queue, and the lowest stream sequence of their rollouts.
        self._places: dict[int, tuple[TaskQueueName, int]] = {}
        self._pending: dict[int, PendingGroup] = {}
        self._served: set[str] = set()  # agents that were found running
        self._reading = asyncio.Semaphore(8)  # Each group that is read may be many megabytes.
        self._working = RunningTasks()

    async def find_queued(self) -> None:
        """Find the rollouts that an earlier trainer left in the queue."""
        async for _, task in self._queue.queued(self._run):
            self._queued[task.task_index][task.rollout_index] = task.replaces

    def num_queued(self) -> dict[int, int]:
        """Return how many rollouts are in the queue, by task index."""
        return {index: len(rollouts) for index, rollouts in self._queued.items()}

    def start(self, pending: PendingGroup) -> asyncio.Task[PendingGroup]:
        """Complete a group in the background."""
        task = self._working.start(self._complete(pending))
        task.add_done_callback(_retrieve)
        return task

    async def stop(self) -> None:
        """Wait for no group any more."""
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)

    async def _complete(self, pending: PendingGroup) -> PendingGroup:
        index = pending.task_index
        while (other := self._pending.get(index)) is not None:
            # Of a batch whose loop was left, for example; the rest comes from the store.
            if await pending.until_ended(other):
                await self._read(pending)
                return pending
        self._pending[index] = pending
        try:
            if pending.options.max_staleness is not None:
                await self._policy.check_versions()
            await self._read(pending)
            while num_stale := await self._exclude_stale(pending):
                pending.add_rows(num_stale)
                await self._read(pending)
            if pending.take_up_refill(self._queued.get(index, {})):
                await self._read(pending)
            await self._roll_out(pending)
            if pending.options.on_failed_group == "refill" and pending.refill():
                await self._read(pending)
                await self._roll_out(pending)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            del self._pending[index]
            pending.end()
        return pending

    async def _roll_out(self, pending: PendingGroup) -> None:
        """Submit the rollouts that a group lacks, and wait for it."""
        pending.expect(self._queued.get(pending.task_index, {}))
        to_submit = list(pending.to_submit())
        if not pending.is_complete:
            await self._check_served(pending.rows[0].agent)
        async with asyncio.TaskGroup() as submitting:
            for row, replaces in to_submit:
                submitting.create_task(self._submit(row, replaces, len(pending.rows), pending.options))
        await self._wait(pending)

    async def _wait(self, pending: PendingGroup) -> None:
        while not pending.is_complete:
            is_late = await pending.until_notified()
            if is_late or pending.may_be_complete:
                await self._read(pending)
            if is_late:
                break
        if pending.is_queued:
            await self._queue.mark_cancelled(self._run, pending.task_index, patience_s=SUBMIT_PATIENCE_S)

    async def _read(self, pending: PendingGroup) -> None:
        """Read what was stored of a group since it was read last, in the order in which it was stored."""

        async def read() -> list[tuple[int, Outcome]]:
            async with self._reading:
                stored = self._queue.outcomes.read(self._run, pending.task_index, after=pending.read_to)
                return [found async for found in stored]

        pending.forget_notifications()
        pending.learn(await self._policy.retried(read))

    async def _submit(
        self, row: MaterialisedRow, replaces: int | None, num_rollouts: int, options: RolloutOptions
    ) -> None:
        task = Task(
            run=self._run,
            task_index=row.task_index,
            rollout_index=row.rollout_index,
            num_rollouts=num_rollouts,
            agent=row.agent,
            row=row.json,
            timeout_s=options.rollout_timeout_s,
            replaces=replaces,
            max_staleness=options.max_staleness,
        )
        self._queued[row.task_index][row.rollout_index] = replaces
        # If it was stored all the same, a repeat does no harm.
        with OnFailure(partial(self._dequeue, row.task_index, row.rollout_index)):
            sequence = await self._queue.submit(task, urgent=options.urgent)
        if row.task_index in self._queued:
            queue = TaskQueueName("urgent" if options.urgent else "tasks", self._run, row.agent)
            _, lowest = self._places.get(row.task_index, (queue, sequence))
            self._places[row.task_index] = queue, min(lowest, sequence)

    async def _check_served(self, agent: str) -> None:
        if agent in self._served:
            return
        try:
            subjects.instance(agent, "agent")
        except subjects.BadToken as error:
            raise UsageError(str(error)) from None
        if not await is_running(self._bus, agent, "agents"):
            raise UsageError(not_running(agent, "agent"))
        self._served.add(agent)

    def on_stored(self, of: RolloutId) -> None:
        self._dequeue(of.task_index, of.rollout_index)
        if of.task_index in self._pending:
            self._pending[of.task_index].notify(of.rollout_index)

    def _dequeue(self, task_index: int, rollout_index: int) -> None:
        if task_index in self._queued:
            self._queued[task_index].pop(rollout_index, None)
            if not self._queued[task_index]:
                del self._queued[task_index]
                self._places.pop(task_index, None)

    def on_missed(self) -> None:
        for pending in self._pending.values():
            pending.notify_all()

    async def give_out(self, pending: PendingGroup) -> Group:
        """Return a group that is complete or was cut.

        Raises:
            UsageError: it lacks samples, and that is to be an error.
        """
        await self._exclude_stale(pending)
        group = pending.group()
        if pending.options.on_failed_group == "raise" and not group.is_complete:
            raise UsageError(group.why_incomplete())
        return group

    async def _exclude_stale(self, pending: PendingGroup) -> int:
        """Exclude samples that became stale after they were stored, until when agents check; return their number."""
        max_staleness = pending.options.max_staleness
        if max_staleness is None or not pending.has_samples:
            return 0
        return pending.exclude_stale(await self._policy.updates_since(), max_staleness)

    async def not_begun(self) -> set[int]:
        """Return the indices of queued tasks of which no agent has taken a rollout."""
        queues = {queue for queue, _ in self._places.values()}
        taken = {queue: await self._policy.retried(partial(self._queue.last_taken, queue)) for queue in queues}
        return {index for index, (queue, lowest) in self._places.items() if lowest > taken.get(queue, lowest)}


def _retrieve(task: asyncio.Task[PendingGroup]) -> None:
    """Mark the error of a task as seen: it is raised where groups are iterated over, which may not happen."""
    if not task.cancelled():
        task.exception()
