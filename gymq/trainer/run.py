"""Rollouts for a program that trains: groups of samples as they are completed, and new weights for the policy.

A training run is a run like any other, so nothing of it depends on the trainer's life: submitted rollouts are run even
if no caller waits, and a later call for the same task index gets what is stored.

The connection of `TrainingRun.connect` lives in a thread of its own: a caller that computes for long, on an event loop
or without one, holds up neither it nor what was submitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import Retuning, steer
from gymq.errors import UsageError
from gymq.processes.failing import OnFailure, OnFailureAwait
from gymq.processes.loop_thread import LoopThread
from gymq.protocol import subjects
from gymq.protocol.messages import Outcome, Steering
from gymq.trainer.batch import Batch
from gymq.trainer.batches import Batches
from gymq.trainer.evaluating import Evaluations
from gymq.trainer.examples import rows_of_groups
from gymq.trainer.group_rollouts import GroupRollouts
from gymq.trainer.groups import Row
from gymq.trainer.options import BatchOptions, RolloutOptions
from gymq.trainer.pending_group import PendingGroup
from gymq.trainer.policy import TrainedPolicy, in_thread
from gymq.trainer.training_batch import TrainingBatch


class TrainingRun(TrainedPolicy):
    """One run of a trainer on a cluster. Use it with `async with`."""

    def __init__(self, bus: Bus, run: str, *, model: str = "policy_model", thread: LoopThread | None = None) -> None:
        """Prepare a run on a connection that the caller owns.

        Args:
            bus: connected as the role trainer.
            run: name that the rollouts are stored under; the same after a restart of the trainer.
            model: instance that is trained.
            thread: that the connection lives in.

        Raises:
            UsageError: a name is not valid.
        """
        super().__init__(bus, model, thread)
        try:
            self.run = subjects.token(run, "run")
        except subjects.BadToken as error:
            raise UsageError(str(error)) from None
        self._queue = QueueClient(bus)
        self._following = AsyncExitStack()
        self._groups = GroupRollouts(bus, self._queue, run, self)

    @classmethod
    async def connect(cls, url: str, run: str, *, model: str = "policy_model") -> Self:
        """Open a run on a connection and in a thread of its own, which `close` ends.

        Raises:
            BusError: the server cannot be reached.
            UsageError: a name is not valid.
        """
        thread = LoopThread(UsageError("the run was closed"))
        with OnFailure(thread.stop):
            return await thread.call(cls.open_in(thread, url, run, model))

    @classmethod
    async def open_in(cls, thread: LoopThread, url: str, run: str, model: str) -> Self:
        """Open a run on a connection of its own, in the thread of the caller, who stops it after `close`.

        Raises:
            BusError: the server cannot be reached.
            UsageError: a name is not valid.
        """
        bus = await Bus.connect(url, role="trainer", name=f"trainer {run}")
        async with OnFailureAwait(bus.close):
            return await cls(bus, run, model=model, thread=thread).__aenter__()

    async def __aenter__(self) -> Self:
        """Find the rollouts that an earlier trainer left in the queue.

        Raises:
            BusError: the server does not answer.
        """
        async with AsyncExitStack() as following:
            groups = self._groups
            await following.enter_async_context(self._queue.follow(self.run, groups.on_stored, groups.on_missed))
            await self._queue.open_run(self.run)
            await groups.find_queued()
            self._following = following.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        await self._groups.stop()
        await self._following.aclose()

    async def close(self) -> None:
        """End a run that `connect` opened, with its connection. Queued rollouts are run all the same."""
        if self.thread is None or not self.thread.is_stopped:
            await self.disconnect()
        if self.thread is not None:
            self.thread.stop()

    @in_thread
    async def disconnect(self) -> None:
        """Close the connection, and leave the thread to its owner."""
        await self._end()
        await self._bus.close()

    # Rollouts ---------------------------------------------------------------------------------------------------------

    def run_rollouts(self, examples: Iterable[Row], **options: Any) -> Batch:
        """Roll out examples; iterate over the result with `async for` to get a group for each as it is completed.

        Args:
            examples: rows, each with its `_ng_task_index`: the same index in the same run means the same group, which
                is answered from the store as far as it is there.
            options: of `RolloutOptions`, such as `num_samples`.

        Raises:
            UsageError: the options do not fit.
            RowError: examples cannot be used; says which and why.
        """
        given = RolloutOptions(**options)
        examples = list(examples)
        rows_of_each = rows_of_groups(examples, given.num_samples + given.num_surplus, given.agent)
        pending = [PendingGroup(example, rows, given) for example, rows in zip(examples, rows_of_each, strict=True)]

        def start() -> list[asyncio.Task[PendingGroup]]:
            return [self._groups.start(one) for one in pending]

        groups = start() if self.thread is None else self.thread.do(start)
        return Batch(pending, groups, self._groups.give_out, in_order=given.in_order, thread=self.thread)

    def train_batches(
        self, rows: Iterable[Row], *, groups: int, num_samples: int, **options: Any
    ) -> AsyncGenerator[TrainingBatch, None]:
        """Yield batches to train on; asking for the next one says that the policy was updated with the one before.

        The rollouts of the next batches run meanwhile.

        Args:
            rows: examples; a list is gone through again and again, each time in another order. Each group gets its
                position in them as its task index.
            groups: of a batch.
            num_samples: rollouts of a group.
            options: of `BatchOptions`, and of `run_rollouts`.

        Raises:
            UsageError: the options do not fit, or, while batches are returned, groups cannot be trained on.
            RowError: while batches are returned, a row cannot be used.
            BusError: while batches are returned, the connection is lost.
        """
        of_batches = BatchOptions.of(groups=groups, num_samples=num_samples, **options)
        evaluations, beside = None, None
        if of_batches.evaluate_every is not None:
            beside = TrainingRun(self._bus, f"{self.run}-eval", model=self.model, thread=self.thread)
            evaluations = Evaluations(beside.run_rollouts, of_batches, of_batches.evaluate_every)
        batches = Batches(rows, of_batches, self.run_rollouts, self.updates_since, self._groups.not_begun, evaluations)

        async def formed() -> AsyncGenerator[TrainingBatch, None]:
            async with AsyncExitStack() as stack:
                if beside is not None:
                    await stack.enter_async_context(beside)
                if of_batches.on_stale != "train":
                    await self.check_versions()
                async for batch in await stack.enter_async_context(aclosing(batches.formed())):
                    yield batch

        return formed() if self.thread is None else self.thread.iterate(formed())

    def stored(self) -> AsyncGenerator[Outcome, None]:
        """Yield the outcomes that are stored of the run.

        Raises:
            BusError: they cannot be read.
        """

        async def read() -> AsyncGenerator[Outcome, None]:
            async for _, outcome in self._queue.outcomes.read(self.run):
                yield outcome

        return read() if self.thread is None else self.thread.iterate(read())

    # Steering ---------------------------------------------------------------------------------------------------------

    @in_thread
    async def pause(self) -> None:
        """Stop agents from starting rollouts of this run until it is resumed, also after restarts.

        Rollouts in flight finish.

        Raises:
            BusError: it is not stored; call it again.
        """
        await steer(self._bus, self.run, paused=True)

    @in_thread
    async def resume(self) -> None:
        """Let agents start rollouts of this run again.

        Raises:
            BusError: it is not stored; call it again.
        """
        await steer(self._bus, self.run, paused=False)

    @in_thread
    async def retune(self, /, **changes: Any) -> Steering:
        """Change how the tasks of this run are taken, from now on and until it is changed again.

        Args:
            changes: `share` of the workers, relative to other runs of the same class; `priority`: `urgent`, `normal` or
                `background`; `max_in_flight`: rollouts of each agent, None for no limit. What is not given stays.

        Returns:
            How the run is steered now.

        Raises:
            UsageError: a change is not one.
            BusError: it is not stored; call it again.
        """
        try:
            given = msgspec.convert(changes, Retuning).given()
        except msgspec.ValidationError as error:
            raise UsageError(f"retune: {error}") from None
        return await steer(self._bus, self.run, **given)

    @in_thread
    async def cancel(self) -> int:
        """Cancel all rollouts of this run, for good; groups that are awaited end with the samples that they have.

        Returns:
            The number of rollouts that were queued or in flight.

        Raises:
            BusError: not all are cancelled; call it again.
        """
        return await self._queue.cancel(self.run)

    async def cancel_left_over(self) -> int:
        """Cancel the rollouts that an earlier trainer left in the queue, for trainers that never ask for them again.

        Call it before rollouts are requested.

        Returns:
            How many rollouts they are.

        Raises:
            BusError: not all are cancelled; call it again.
        """
        left_over = self._groups.num_queued()
        for task_index in left_over:
            await self._queue.mark_cancelled(self.run, task_index)
        return sum(left_over.values())
