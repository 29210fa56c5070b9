"""Rollouts for a program that trains: groups of samples as they are completed, and new weights for the policy.

A training run is a run like any other, so nothing of it depends on the trainer's life: submitted rollouts are run even
if no caller waits, and a later call for the same task index gets what is stored.

The connection of `TrainingRun.connect` lives in a thread of its own: a caller that computes for long, on an event loop
or without one, holds up neither it nor what was submitted.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from gymq.bus import Bus
from gymq.bus.discovery import is_running, not_running
from gymq.bus.loop_thread import LoopThread
from gymq.bus.queue.client import SERVER_PATIENCE_S, SUBMIT_PATIENCE_S, QueueClient
from gymq.bus.queue.steering import Retuning, steer
from gymq.bus.weights.holding import held, until_finished
from gymq.bus.weights.known import VersionsUnknown, check_known, told_versions
from gymq.bus.weights.pushing import Pushed, PushError, announce, newest, push
from gymq.bus.weights.staleness import updates_since
from gymq.data.rows import MaterialisedRow
from gymq.defaults import CONFIRM_S, MAX_TIMEOUT_S, MAX_VERSIONS, InFlight, WeightsMode
from gymq.processes.background import RunningTasks
from gymq.protocol import subjects
from gymq.protocol.messages import Outcome, Steering, Task
from gymq.protocol.subjects import RolloutId, TaskQueueName
from gymq.trainer.batch_options import BatchOptions
from gymq.trainer.batches import Batches
from gymq.trainer.evaluating import Evaluations
from gymq.trainer.examples import rows_of_groups
from gymq.trainer.groups import (
    Batch,
    Group,
    OnFailedGroup,
    OnUntrainable,
    PendingGroup,
    Row,
    TrainerError,
)
from gymq.trainer.told_versions import ToldVersions
from gymq.trainer.training_batch import TrainingBatch

MOST_READ_AT_ONCE = 8  # groups, each of which may be many megabytes

P = ParamSpec("P")
T = TypeVar("T")
UpdateHook = Callable[[str], Awaitable[None]]


def _retrieve(task: asyncio.Task[PendingGroup]) -> None:
    """Mark the error of a task as seen: it is raised where groups are iterated over, which may not happen."""
    if not task.cancelled():
        task.exception()


def _in_thread(
    method: Callable[Concatenate[TrainingRun, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[TrainingRun, P], Coroutine[Any, Any, T]]:
    """Let a method run where the connection lives."""

    @functools.wraps(method)
    async def called(self: TrainingRun, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._there(method(self, *args, **kwargs))

    return called


@dataclass(frozen=True)
class _BatchSettings:
    """The settings that all rollouts of a batch share."""

    max_staleness: int | None
    rollout_timeout_s: float
    urgent: bool
    on_failed_group: OnFailedGroup


class TrainingRun:
    """One run of a trainer on a cluster. Use it with `async with`.

    Attributes:
        thread: where the connection lives; None: on the caller's event loop.
    """

    def __init__(self, bus: Bus, run: str, *, model: str = "policy_model", thread: LoopThread | None = None) -> None:
        """Prepare a run on a connection that the caller owns.

        Args:
            bus: connected as the role trainer.
            run: name that the rollouts are stored under; the same after a restart of the trainer.
            model: instance that is trained.
            thread: that the connection lives in.

        Raises:
            TrainerError: a name is not valid.
        """
        self.thread = thread
        try:
            self.run = subjects.token(run, "run")
            subjects.instance(model, "model")
        except subjects.BadToken as error:
            raise TrainerError(str(error)) from None
        self.model = model
        self.policy_version: str | None = None  # that was pushed last by this object
        self._bus = bus
        self._queue = QueueClient(bus)
        self._following = AsyncExitStack()
        # By task and rollout index, with the stream sequence of the failure to be replaced.
        self._queued: defaultdict[int, dict[int, int | None]] = defaultdict(dict)
        # Of tasks in the queue: which queue, and the lowest stream sequence of their rollouts.
        self._places: dict[int, tuple[TaskQueueName, int]] = {}
        self._pending: dict[int, PendingGroup] = {}
        self._served: set[str] = set()  # agents that were found running
        self._checking = asyncio.Lock()
        self._has_versions = False  # what a limit on staleness needs
        self._told = ToldVersions(bus, model)
        self._reading = asyncio.Semaphore(MOST_READ_AT_ONCE)
        self._groups = RunningTasks()
        self._replicas: set[str] = set()  # that the last push found
        self._before_update: list[UpdateHook] = []
        self._after_update: list[UpdateHook] = []

    @classmethod
    async def connect(cls, url: str, run: str, *, model: str = "policy_model") -> Self:
        """Open a run on a connection and in a thread of its own, which `close` ends.

        Raises:
            BusError: the server cannot be reached.
            TrainerError: a name is not valid.
        """
        thread = LoopThread(TrainerError("the run was closed"))
        try:
            return await thread.call(cls.open_in(thread, url, run, model))
        except BaseException:
            thread.stop()
            raise

    @classmethod
    async def open_in(cls, thread: LoopThread, url: str, run: str, model: str) -> Self:
        """Open a run on a connection of its own, in the thread of the caller, who stops it after `close`.

        Raises:
            BusError: the server cannot be reached.
            TrainerError: a name is not valid.
        """
        bus = await Bus.connect(url, role="trainer", name=f"trainer {run}")
        try:
            return await cls(bus, run, model=model, thread=thread).__aenter__()
        except BaseException:
            await bus.close()
            raise

    async def __aenter__(self) -> Self:
        """Find the rollouts that an earlier trainer left in the queue.

        Raises:
            BusError: the server does not answer.
        """
        async with AsyncExitStack() as following:
            await following.enter_async_context(self._queue.follow(self.run, self._on_stored, self._on_missed))
            await self._queue.open_run(self.run)
            async for _, task in self._queue.queued(self.run):
                self._queued[task.task_index][task.rollout_index] = task.replaces
            self._following = following.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        for task in self._groups:
            task.cancel()
        if self._groups:
            await asyncio.wait(self._groups)
        await self._following.aclose()

    async def close(self) -> None:
        """End a run that `connect` opened, with its connection. Queued rollouts are run all the same."""
        if self.thread is None or not self.thread.is_stopped:
            await self.disconnect()
        if self.thread is not None:
            self.thread.stop()

    @_in_thread
    async def disconnect(self) -> None:
        """Close the connection, and leave the thread to its owner."""
        await self._end()
        await self._bus.close()

    # Rollouts ---------------------------------------------------------------------------------------------------------

    def run_rollouts(
        self,
        examples: Iterable[Row],
        *,
        num_samples: int = 1,
        num_surplus: int = 0,
        straggler_s: float | None = None,
        max_staleness: int | None = None,
        rollout_timeout_s: float = 3600.0,
        in_order: bool = False,
        on_untrainable: OnUntrainable = "error",
        on_failed_group: OnFailedGroup = "mask",
        agent: str | None = None,
        urgent: bool = False,
    ) -> Batch:
        """Roll out examples; iterate over the result with `async for` to get a group for each as it is completed.

        Args:
            examples: rows, each with its `_ng_task_index`: the same index in the same run means the same group, which
                is answered from the store as far as it is there.
            num_samples: rollouts a group needs.
            num_surplus: rollouts of each group that are started on top; when enough are done the rest is cut.
            straggler_s: seconds after the first outcome of a group when what is missing is cut; None: it is waited for.
            max_staleness: updates of the policy that may come between the first reply of a rollout and the moment when
                its group is given out; None: any number. Rollouts that take longer are thrown away; `train_batches`
                waits for them.
            rollout_timeout_s: seconds for a rollout, from the moment an agent takes it.
            in_order: give groups in the order of the examples.
            on_untrainable: `allow` takes rollouts without token ids as samples, for evaluation; `error` as failures.
            on_failed_group: `mask` gives a group out with the samples that it has; `refill` first rolls out as many
                more as failed, once, if a sample of the group succeeded; `raise` makes it an error.
            agent: instance for examples that name none.
            urgent: before the tasks of other runs.

        Raises:
            TrainerError: the options do not fit.
            RowError: examples cannot be used; says which and why.
        """
        if not 0 < rollout_timeout_s <= MAX_TIMEOUT_S:
            raise TrainerError(
                f"rollout_timeout_s must be above 0 and at most {MAX_TIMEOUT_S}, not {rollout_timeout_s}"
            )
        if num_samples < 1 or num_surplus < 0:
            raise TrainerError(f"a group of {num_samples} samples and {num_surplus} on top cannot be made")
        if max_staleness is not None and not 0 <= max_staleness <= MAX_VERSIONS:
            raise TrainerError(f"max_staleness must be 0 to {MAX_VERSIONS}, not {max_staleness}")
        examples = list(examples)
        rows_of_each = rows_of_groups(examples, num_samples + num_surplus, agent)
        pending = [
            PendingGroup(example, rows, num_samples, straggler_s, on_untrainable)
            for example, rows in zip(examples, rows_of_each, strict=True)
        ]
        settings = _BatchSettings(max_staleness, rollout_timeout_s, urgent, on_failed_group)

        def start() -> list[asyncio.Task[PendingGroup]]:
            groups = [self._groups.start(self._complete(one, settings)) for one in pending]
            for task in groups:
                task.add_done_callback(_retrieve)
            return groups

        async def give_out(pending: PendingGroup) -> Group:
            await self._exclude_stale(pending, max_staleness)
            group = pending.group()
            if on_failed_group == "raise" and not group.is_complete:
                raise TrainerError(group.why_incomplete())
            return group

        groups = start() if self.thread is None else self.thread.do(start)
        return Batch(pending, groups, give_out, in_order=in_order, thread=self.thread)

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
            TrainerError: the options do not fit, or, while batches are returned, groups cannot be trained on.
            RowError: while batches are returned, a row cannot be used.
            BusError: while batches are returned, the connection is lost.
        """
        of_batches = BatchOptions.of(groups=groups, num_samples=num_samples, **options)
        evaluations, beside = None, None
        if of_batches.evaluate_every is not None:
            beside = TrainingRun(self._bus, f"{self.run}-eval", model=self.model, thread=self.thread)
            evaluations = Evaluations(
                beside.run_rollouts,
                of_batches.evaluation_rows,
                num_samples=of_batches.evaluation_samples,
                every=of_batches.evaluate_every,
            )
        batches = Batches(rows, of_batches, self.run_rollouts, self.updates_since, self.not_begun, evaluations)

        async def formed() -> AsyncGenerator[TrainingBatch, None]:
            async with AsyncExitStack() as stack:
                if beside is not None:
                    await stack.enter_async_context(beside)
                if of_batches.on_stale != "train":
                    await self._check_versions()
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

    async def _complete(self, pending: PendingGroup, settings: _BatchSettings) -> PendingGroup:
        """Complete one group."""
        index = pending.task_index
        while (other := self._pending.get(index)) is not None:
            # Of a batch whose loop was left, for example; the rest comes from the store.
            if await pending.until_ended(other):
                await self._read(pending)
                return pending
        self._pending[index] = pending
        try:
            if settings.max_staleness is not None:
                await self._check_versions()
            await self._read(pending)
            while num_stale := await self._exclude_stale(pending, settings.max_staleness):
                pending.add_rows(num_stale)
                await self._read(pending)
            if pending.take_up_refill(self._queued.get(index, {})):
                await self._read(pending)
            await self._roll_out(pending, settings)
            if settings.on_failed_group == "refill" and pending.refill():
                await self._read(pending)
                await self._roll_out(pending, settings)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            del self._pending[index]
            pending.end()
        return pending

    async def _roll_out(self, pending: PendingGroup, settings: _BatchSettings) -> None:
        """Submit the rollouts that a group lacks, and wait for it."""
        pending.expect(self._queued.get(pending.task_index, {}))
        to_submit = list(pending.to_submit())
        if not pending.is_complete:
            await self._check_served(pending.rows[0].agent)
        async with asyncio.TaskGroup() as submitting:
            for row, replaces in to_submit:
                submitting.create_task(self._submit(row, replaces, len(pending.rows), settings))
        await self._wait(pending)

    async def _wait(self, pending: PendingGroup) -> None:
        while not pending.is_complete:
            is_late = await pending.until_notified()
            if is_late or pending.may_be_complete:
                await self._read(pending)
            if is_late:
                break
        if pending.is_queued:
            await self._queue.mark_cancelled(self.run, pending.task_index, patience_s=SUBMIT_PATIENCE_S)

    async def _read(self, pending: PendingGroup) -> None:
        """Read what was stored of a group since it was read last, in the order in which it was stored."""

        async def read() -> list[tuple[int, Outcome]]:
            async with self._reading:
                stored = self._queue.outcomes.read_task(self.run, pending.task_index, after=pending.read_to)
                return [found async for found in stored]

        pending.forget_notifications()
        pending.learn(await self._retry(read))

    async def _retry(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return what a reader returns, also if the server is away for a while."""
        hint = "request the same task indices again to resume"
        return await self._bus.retry_read(read, hint=hint, patience_s=SERVER_PATIENCE_S)

    async def _submit(
        self, row: MaterialisedRow, replaces: int | None, num_rollouts: int, settings: _BatchSettings
    ) -> None:
        task = Task(
            run=self.run,
            task_index=row.task_index,
            rollout_index=row.rollout_index,
            num_rollouts=num_rollouts,
            agent=row.agent,
            row=row.json,
            timeout_s=settings.rollout_timeout_s,
            replaces=replaces,
            max_staleness=settings.max_staleness,
        )
        self._queued[row.task_index][row.rollout_index] = replaces
        try:
            sequence = await self._queue.submit(task, urgent=settings.urgent)
        except BaseException:
            self._dequeue(row.task_index, row.rollout_index)  # if it was stored all the same, a repeat does no harm
            raise
        if row.task_index in self._queued:
            queue = TaskQueueName("urgent" if settings.urgent else "tasks", self.run, row.agent)
            _, lowest = self._places.get(row.task_index, (queue, sequence))
            self._places[row.task_index] = queue, min(lowest, sequence)

    async def _check_versions(self) -> None:
        async with self._checking:
            if self._has_versions:
                return
            await self._told.announce()
            try:
                await check_known(self._bus, self.model)
            except VersionsUnknown as error:
                raise TrainerError(str(error)) from None
            self._has_versions = True

    async def _check_served(self, agent: str) -> None:
        if agent in self._served:
            return
        try:
            subjects.instance(agent, "agent")
        except subjects.BadToken as error:
            raise TrainerError(str(error)) from None
        if not await is_running(self._bus, agent, "agents"):
            raise TrainerError(not_running(agent, "agent"))
        self._served.add(agent)

    def _on_stored(self, of: RolloutId) -> None:
        self._dequeue(of.task_index, of.rollout_index)
        if of.task_index in self._pending:
            self._pending[of.task_index].notify(of.rollout_index)

    def _dequeue(self, task_index: int, rollout_index: int) -> None:
        if task_index in self._queued:
            self._queued[task_index].pop(rollout_index, None)
            if not self._queued[task_index]:
                del self._queued[task_index]
                self._places.pop(task_index, None)

    def _on_missed(self) -> None:
        for pending in self._pending.values():
            pending.notify_all()

    async def _exclude_stale(self, pending: PendingGroup, max_staleness: int | None) -> int:
        """Exclude samples that became stale after they were stored, until when agents check; return their number."""
        if max_staleness is None or not pending.has_samples:
            return 0
        return pending.exclude_stale(await self.updates_since(), max_staleness)

    async def updates_since(self) -> Callable[[str], int]:
        """Return a function that says how many updates of the policy came after a version.

        Raises:
            BusError: the newest version cannot be read.
        """
        await self._told.announce()
        weights = await self._retry(lambda: newest(self._bus, self.model))
        return (lambda version: 0) if weights is None else updates_since(weights)

    async def not_begun(self) -> set[int]:
        """Return the indices of queued tasks of which no agent has taken a rollout.

        Raises:
            BusError: the queue cannot be read.
        """
        queues = {queue for queue, _ in self._places.values()}
        taken = {queue: await self._retry(functools.partial(self._queue.last_taken, queue)) for queue in queues}
        return {index for index, (queue, lowest) in self._places.items() if lowest > taken.get(queue, lowest)}

    # Steering ---------------------------------------------------------------------------------------------------------

    @_in_thread
    async def pause(self) -> None:
        """Stop agents from starting rollouts of this run until it is resumed, also after restarts.

        Rollouts in flight finish.

        Raises:
            BusError: it is not stored; call it again.
        """
        await steer(self._bus, self.run, paused=True)

    @_in_thread
    async def resume(self) -> None:
        """Let agents start rollouts of this run again.

        Raises:
            BusError: it is not stored; call it again.
        """
        await steer(self._bus, self.run, paused=False)

    @_in_thread
    async def retune(self, /, **changes: Any) -> Steering:
        """Change how the tasks of this run are taken, from now on and until it is changed again.

        Args:
            changes: `share` of the workers, relative to other runs of the same class; `priority`: `urgent`, `normal` or
                `background`; `max_in_flight`: rollouts of each agent, None for no limit. What is not given stays.

        Returns:
            How the run is steered now.

        Raises:
            TrainerError: a change is not one.
            BusError: it is not stored; call it again.
        """
        try:
            given = msgspec.convert(changes, Retuning).given()
        except msgspec.ValidationError as error:
            raise TrainerError(f"retune: {error}") from None
        return await steer(self._bus, self.run, **given)

    @_in_thread
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
        left_over = {index: len(rollouts) for index, rollouts in self._queued.items()}
        for task_index in left_over:
            await self._queue.mark_cancelled(self.run, task_index)
        return sum(left_over.values())

    # Weights ----------------------------------------------------------------------------------------------------------

    def before_update(self, hook: UpdateHook) -> None:
        """Await `hook(policy_version)` before new weights are pushed; if it raises they are not."""
        self._before_update.append(hook)

    def after_update(self, hook: UpdateHook) -> None:
        """Await `hook(policy_version)` when replicas have loaded new weights."""
        self._after_update.append(hook)

    async def update_weights(
        self,
        policy_version: str,
        *,
        weights: bytes | Path | None = None,
        path: str | Path | None = None,
        mode: WeightsMode = "keep",
        in_flight: InFlight = "continue",
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Give all replicas of the model new weights; the arguments are those of `gymq.bus.weights.pushing.push`.

        Returns:
            Which replicas have loaded them. One that has not yet keeps answering under the version that it has.

        Raises:
            PushError: no replica has loaded them.
            BusError: NATS was away; it is unknown whether they were pushed.
        """
        options: dict[str, Any] = {"weights": weights, "path": path, "mode": mode, "in_flight": in_flight}
        for hook in self._before_update:
            await hook(policy_version)
        pushed = await self._push(push, policy_version, deadline_s, options)
        for hook in self._after_update:
            await hook(policy_version)
        return pushed

    async def announce(
        self,
        policy_version: str,
        *,
        engines: Sequence[str] = (),
        in_flight: InFlight = "continue",
        load: Callable[[], Awaitable[None]] | None = None,
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Tell that the model's engines have new weights, which this program gives them itself.

        From then on calls of the model carry the version. Announce while the engines are paused: tokens of a reply
        whose call is in flight meanwhile have no known version.

        Args:
            policy_version: recorded in every rollout that the engines answer.
            engines: URLs of those that answer from now on; empty: the same as before.
            in_flight: what becomes of rollouts that run, as in `update_weights`; `finish` needs `load`.
            load: gives the engines the weights; awaited before, and with `finish` once the rollouts have ended.
            deadline_s: seconds for the model's workers to answer with the version, and for rollouts to finish.

        Returns:
            Which workers answer with it.

        Raises:
            PushError: none does.
            BusError: NATS was away; it is unknown whether it was announced.
        """
        if in_flight == "finish" and load is None:
            raise PushError("finish: the engines have the weights already; `load` gives them when rollouts have ended")
        for hook in self._before_update:
            await hook(policy_version)
        async with self._held(in_flight, deadline_s):
            if load is not None:
                await load()
            pushed = await self._push(
                announce, policy_version, deadline_s, {"in_flight": in_flight, "engines": engines}
            )
        for hook in self._after_update:
            await hook(policy_version)
        return pushed

    @_in_thread
    async def needs_announcing(self) -> bool:
        """Return whether the versions of the model are known only if the program announces them.

        Raises:
            BusError: the server does not answer.
        """
        return await told_versions(self._bus, self.model) == []

    @asynccontextmanager
    async def _held(self, in_flight: InFlight, deadline_s: float) -> AsyncIterator[None]:
        """Have no rollout begin until the block ends, and with `finish` none run in it."""
        async with AsyncExitStack() as stack:
            if in_flight != "continue":
                hold = held(self._bus, self.model)
                await self._there(hold.__aenter__())
                stack.push_async_callback(lambda: self._there(hold.__aexit__(None, None, None)))
            if in_flight == "finish":
                await self._there(until_finished(self._bus, self.model, deadline_s))
            yield

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await (work if self.thread is None else self.thread.call(work))

    @_in_thread
    async def _push(
        self, give: Callable[..., Awaitable[Pushed]], policy_version: str, deadline_s: float, options: dict[str, Any]
    ) -> Pushed:
        self._told.stop()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + deadline_s
        no_replica = f"none answered within {deadline_s:g} s"
        while True:
            pushed = await give(
                self._bus, self.model, policy_version, deadline_s=deadline_s, known=self._replicas, **options
            )
            self._replicas = {*pushed.confirmed, *pushed.missing}
            if pushed.confirmed or pushed.missing or loop.time() >= give_up:
                break
            if not await is_running(self._bus, self.model, "models"):
                no_replica = "none is running; one that starts loads them"
                break
            # The replicas were too busy to answer in time. A push that is repeated counts once.
        if not pushed.confirmed:
            reasons = "; ".join(f"{worker}: {reason}" for worker, reason in pushed.missing.items())
            raise PushError(f"no replica of {self.model} answers with {policy_version!r}: {reasons or no_replica}")
        self.policy_version = policy_version
        return pushed
