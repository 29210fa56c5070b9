"""Rollouts for a program that trains: groups of samples as they are completed, and new weights for the policy.

A training run is a run like any other, so nothing of it depends on the trainer's life: what was submitted is made
whether somebody waits or not, and whoever asks for the same task index again gets what is stored.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nats.aio.msg import Msg

from gymq import streams, subjects
from gymq.bus import Bus, BusError
from gymq.discovery import is_running
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Cancellation, Run, Task, encode
from gymq.model import WeightsMode
from gymq.outcome_store import OutcomeStore
from gymq.rows import MaterialisedRow
from gymq.run_setup import MAX_TIMEOUT_S
from gymq.tasks import read_task, submit
from gymq.trainer_groups import Group, OnUntrainable, Pending, Row, TrainerError, rows_of_groups
from gymq.weights import CONFIRM_S, MAX_VERSIONS, Pushed, PushError, newest, push

log = logging.getLogger("gymq.trainer")

SUBMIT_PATIENCE_S = 120.0  # while the server is away or full
MOST_SUBMITTED_AT_ONCE = 64
MOST_READ_AT_ONCE = 8  # groups, each of which may be many megabytes
LOOK_AGAIN_EVERY_S = 10.0  # a doorbell may be missed
READ_AGAIN_S = 1.0
SERVER_PATIENCE_S = 300.0  # without an answer, before a group is given up; what was stored is not lost

UpdateHook = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class _Asked:
    """What is the same for all rollouts of a batch."""

    max_staleness: int | None
    rollout_timeout_s: float
    urgent: bool


class Batch:
    """The groups of a call, each given out once. All work goes on while nobody iterates."""

    def __init__(self, pending: Sequence[Pending], groups: Sequence[asyncio.Task[Group]], *, in_order: bool) -> None:
        self._pending = pending
        self._groups = groups
        self._in_order = in_order

    async def __aiter__(self) -> AsyncIterator[Group]:
        """
        Raises:
            TrainerError, BusError: of the first group that could not be completed; after all others were given out.
        """
        problem: Exception | None = None
        arrived = self._groups if self._in_order else asyncio.as_completed(self._groups)
        try:
            for group in arrived:
                try:
                    found = await group
                except (TrainerError, BusError) as error:
                    problem = problem or error
                else:
                    yield found
        finally:
            # Who leaves the loop waits no longer; the rollouts are made all the same.
            for task in self._groups:
                task.cancel()
        if problem is not None:
            raise problem

    def cut(self) -> None:
        """End now: what is not done is cancelled, and groups are given out with the samples that they have."""
        for pending in self._pending:
            pending.cut()


class TrainingRun:
    """One run of a trainer on a cluster. Use it with `async with`, on one event loop."""

    def __init__(self, bus: Bus, run: str, *, model: str = "policy_model") -> None:
        """
        Args:
            bus: connected as the role trainer.
            run: name that the rollouts are stored under; the same after a restart of the trainer.
            model: instance that is trained.

        Raises:
            TrainerError: a name cannot be used.
        """
        try:
            self.run = subjects.token(run, "run")
            self.model = subjects.token(model, "model")
        except subjects.BadToken as error:
            raise TrainerError(str(error)) from None
        self.policy_version: str | None = None  # that was pushed last by this object
        self._bus = bus
        self._js = JetStream(bus)
        self._outcomes = OutcomeStore(bus)
        self._start = secrets.token_hex(8)
        # By task and rollout index, with the stream sequence of the failure to be replaced.
        self._queued: defaultdict[int, dict[int, int | None]] = defaultdict(dict)
        self._pending: dict[int, Pending] = {}
        self._served: set[str] = set()  # agents that were found running
        self._submitting = asyncio.Semaphore(MOST_SUBMITTED_AT_ONCE)
        self._reading = asyncio.Semaphore(MOST_READ_AT_ONCE)
        self._groups: set[asyncio.Task[Group]] = set()
        self._before_update: list[UpdateHook] = []
        self._after_update: list[UpdateHook] = []

    @classmethod
    async def connect(cls, url: str, run: str, *, model: str = "policy_model") -> Self:
        """A run over a connection of its own, which `close` ends.

        Raises:
            BusError, TrainerError
        """
        bus = await Bus.connect(url, role="trainer", name=f"trainer {run}")
        try:
            return await cls(bus, run, model=model).__aenter__()
        except BaseException:
            await bus.close()
            raise

    async def __aenter__(self) -> Self:
        """Find what an earlier trainer has left in the queue.

        Raises:
            BusError
        """
        self._bell = await self._bus.subscribe(subjects.done_of_run(self.run), self._on_done)
        self._bus.on_reconnect(self._ring_all)
        await self._bus.flush()
        record = encode(Run(run=self.run, created_at=time.time()))
        if await self._js.last(streams.RUNS, subjects.run_record(self.run)) is None:
            await self._js.store_surely(subjects.run_record(self.run), record, {}, patience_s=SUBMIT_PATIENCE_S)
        for subject in (subjects.tasks_of_run(self.run), subjects.urgent_tasks_of_run(self.run)):
            async for stored in self._js.read(streams.TASKS, subject):
                try:
                    task = await read_task(self._bus, stored.data)
                except BadMessage:
                    continue  # an agent will bury it
                self._queued[task.task_index][task.rollout_index] = task.replaces
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._groups:
            task.cancel()
        if self._groups:
            await asyncio.wait(self._groups)
        if not self._bus.lost.is_set():
            await self._bus.unsubscribe(self._bell)

    async def close(self) -> None:
        """End a run that `connect` gave, with its connection. Rollouts in the queue are made all the same."""
        await self.__aexit__(None, None, None)
        await self._bus.close()

    # Rollouts ---------------------------------------------------------------------------------------------------------

    def run_rollouts(
        self,
        examples: Sequence[Row],
        *,
        num_samples: int = 1,
        num_surplus: int = 0,
        straggler_s: float | None = None,
        max_staleness: int | None = None,
        rollout_timeout_s: float = 3600.0,
        in_order: bool = False,
        on_untrainable: OnUntrainable = "error",
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
                its group is given out; None: any number.
            rollout_timeout_s: seconds for a rollout, from the moment an agent takes it.
            in_order: give groups in the order of the examples.
            on_untrainable: `allow` takes rollouts without token ids as samples, for evaluation; `error` as failures.
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
        rows_of_each = rows_of_groups(examples, num_samples + num_surplus, agent)
        pending = [
            Pending(example, rows, num_samples, straggler_s, on_untrainable)
            for example, rows in zip(examples, rows_of_each, strict=True)
        ]
        asked = _Asked(max_staleness, rollout_timeout_s, urgent)
        groups = [asyncio.create_task(self._complete(one, asked)) for one in pending]
        for task in groups:
            self._groups.add(task)
            task.add_done_callback(self._forget)
        return Batch(pending, groups, in_order=in_order)

    def _forget(self, task: asyncio.Task[Group]) -> None:
        self._groups.discard(task)
        if not task.cancelled():
            task.exception()  # whoever iterates is told; nobody may

    async def _complete(self, pending: Pending, asked: _Asked) -> Group:
        """Bring one group to its end."""
        index = pending.task_index
        if self._pending.setdefault(index, pending) is not pending:
            raise TrainerError(f"task {index} of run {self.run} is waited for already")
        try:
            await self._check_served(pending.rows[0].agent)
            await self._read(pending)
            pending.expect(self._queued.get(index, {}))
            async with asyncio.TaskGroup() as group:
                for row, replaces in pending.to_submit():
                    group.create_task(self._submit(row, replaces, len(pending.rows), asked))
            await self._wait(pending)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            del self._pending[index]
        group_ = pending.group()
        return group_ if asked.max_staleness is None else await self._without_stale(group_, asked.max_staleness)

    async def _wait(self, pending: Pending) -> None:
        loop = asyncio.get_running_loop()
        while not pending.is_complete:
            wait_s = min(LOOK_AGAIN_EVERY_S, max(0.0, pending.cut_at - loop.time()))
            missed = False
            try:
                async with asyncio.timeout(wait_s):
                    await pending.bell.wait()
            except TimeoutError:
                missed = True
            pending.bell.clear()
            is_late = loop.time() >= pending.cut_at
            if not (missed or is_late or pending.may_be_complete):
                continue
            await self._read(pending)
            if is_late:
                break
        if pending.is_queued:
            await self._cut(pending)

    async def _read(self, pending: Pending) -> None:
        """Take in what is stored of a group, in the order in which it was stored; tried again while NATS is away."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + SERVER_PATIENCE_S
        pending.forget_bells()
        while True:
            try:
                async with self._reading:
                    stored = [found async for found in self._outcomes.read_task(self.run, pending.task_index)]
                break
            except BusError as error:
                if self._bus.lost.is_set() or loop.time() > give_up:
                    raise BusError(f"{error}; ask for the same task indices again to go on") from None
            await asyncio.sleep(READ_AGAIN_S)
        pending.learn(stored)

    async def _submit(self, row: MaterialisedRow, replaces: int | None, num_rollouts: int, asked: _Asked) -> None:
        task = Task(
            run=self.run,
            task_index=row.task_index,
            rollout_index=row.rollout_index,
            num_rollouts=num_rollouts,
            agent=row.agent,
            row=row.json,
            timeout_s=asked.rollout_timeout_s,
            replaces=replaces,
            max_staleness=asked.max_staleness,
        )
        async with self._submitting:
            self._queued[row.task_index][row.rollout_index] = replaces
            once = f"{self._start}-{replaces or 0}"
            try:
                await submit(self._bus, task, once=once, urgent=asked.urgent, patience_s=SUBMIT_PATIENCE_S)
            except BaseException:
                self._dequeue(row.task_index, row.rollout_index)  # if it was stored all the same, a repeat does no harm
                raise

    async def _cut(self, pending: Pending) -> None:
        """Have agents stop what is left of a group; what waits in the queue ends as they come to it."""
        mark = encode(Cancellation(run=self.run, task_index=pending.task_index, at=time.time()))
        subject = subjects.cancelled(self.run, pending.task_index)
        await self._js.store_surely(subject, mark, {}, patience_s=SUBMIT_PATIENCE_S)

    async def _check_served(self, agent: str) -> None:
        if agent in self._served:
            return
        try:
            subjects.token(agent, "agent")
        except subjects.BadToken as error:
            raise TrainerError(str(error)) from None
        if not await is_running(self._bus, agent, "agents"):
            raise TrainerError(f"no agent named {agent!r} is running; `gymq status` lists those that are")
        self._served.add(agent)

    async def _on_done(self, message: Msg) -> None:
        _, _, _, task_index, rollout_index = message.subject.split(".")
        self._dequeue(int(task_index), int(rollout_index))
        if int(task_index) in self._pending:
            self._pending[int(task_index)].ring(int(rollout_index))

    def _dequeue(self, task_index: int, rollout_index: int) -> None:
        if task_index in self._queued:
            self._queued[task_index].pop(rollout_index, None)
            if not self._queued[task_index]:
                del self._queued[task_index]

    def _ring_all(self) -> None:
        # What was stored while this process was away is not heard any more.
        for pending in self._pending.values():
            pending.ring_all()

    async def _without_stale(self, group: Group, max_staleness: int) -> Group:
        """Take out what became stale after it was stored; agents have looked until then."""
        record = await newest(self._bus, self.model)
        if record is None:
            return group
        versions = [*record.before, record.policy_version]
        behind = {version: len(versions) - 1 - position for position, version in enumerate(versions)}
        return group.fresh(lambda version: behind.get(version, len(versions)), max_staleness)

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
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Give all replicas of the model new weights; the arguments are those of `gymq.weights.push`.

        Returns:
            Which replicas have loaded them. One that has not yet goes on under the version that it has.

        Raises:
            PushError: no replica has loaded them.
            BusError: NATS was away; it is unknown whether they were pushed.
        """
        for hook in self._before_update:
            await hook(policy_version)
        while True:
            pushed = await push(
                self._bus, self.model, policy_version, weights=weights, path=path, mode=mode, deadline_s=deadline_s
            )
            if pushed.confirmed or pushed.missing or not await is_running(self._bus, self.model, "models"):
                break
            # The replicas were too busy to say in time that they are there. A push that is repeated counts once.
        if not pushed.confirmed:
            reasons = "; ".join(f"{worker}: {reason}" for worker, reason in pushed.missing.items())
            raise PushError(f"no replica of {self.model} has loaded {policy_version!r}: {reasons or 'none is running'}")
        self.policy_version = policy_version
        for hook in self._after_update:
            await hook(policy_version)
        return pushed
