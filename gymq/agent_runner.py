"""Runs an agent over the tasks of its queue; each ends in one stored outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from gymq import tracing
from gymq.agent import Agent, Caller
from gymq.attempts import COMMON, Attempts, Settled, failure_of
from gymq.bus import Bus, BusError
from gymq.cancel import Cancellations, cancelled_outcome
from gymq.dead_letters import bury, bury_failure
from gymq.jetstream import Delivery
from gymq.journal import Fenced, Journal
from gymq.messages import BadMessage, FailureClass, Outcome, Rollout, Stage, Task
from gymq.outcome_store import OutcomeStore
from gymq.outcomes import RolloutError
from gymq.quarantine import TRUSTED_DELIVERIES, Quarantine
from gymq.task_queue import TaskQueue
from gymq.tasks import read_task

log = logging.getLogger("gymq.agent")

STORE_PATIENCE_S = 600.0


class AgentRunner:
    """Takes tasks of one agent instance from the queue."""

    def __init__(
        self, bus: Bus, calls: Caller, agent: Agent, *, worker: str, quarantine: Quarantine | None = None
    ) -> None:
        """
        Args:
            quarantine: of the whole process, where several agents share it.
        """
        self.num_done = 0
        self.num_failed = 0
        self.busy_s = 0.0
        self._bus = bus
        self._outcomes = OutcomeStore(bus)
        self._attempts = Attempts(bus, calls, agent, worker=worker)
        self._cancellations = Cancellations(bus, self._cancel)
        self._in_work: dict[asyncio.Task[Any], Task] = {}
        self._quarantine = quarantine or Quarantine()
        self._worker = worker
        slots = agent.options.max_concurrency or agent.max_concurrency
        self._queue = TaskQueue(bus, agent.name, slots, self._handle)

    def stats(self) -> dict[str, Any]:
        return {
            "num_requests": self.num_done + self.num_failed,
            "num_errors": self.num_failed,
            "processing_s": self.busy_s,
            "load": self._queue.load,
        }

    async def start(self) -> None:
        """Begin to take tasks.

        Raises:
            BusError: the agent has no queue.
        """
        await self._cancellations.start()
        await self._queue.start()

    async def drain(self, deadline_s: float) -> None:
        """Take no more tasks, finish those running within `deadline_s`, give back the rest."""
        await self._queue.drain(deadline_s)

    def _cancel(self, run: str, task_index: int | None) -> None:
        for working, task in list(self._in_work.items()):
            if task.run == run and task_index in (None, task.task_index):
                working.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        if self._queue.draining:
            await delivery.nak()
            return
        task: Task | None = None
        try:
            task = await self._read(delivery)
            if task is None:
                return
            if await self._outcomes.settles(task):
                if delivery.num_delivered > 1:
                    # Whoever had the task before may have stored a failure and died before burying it.
                    await bury_failure(self._bus, "agent", task, delivery.subject, delivery.data)
                await delivery.ack()
                return
            if (task.run, task.task_index) in self._cancellations:
                await self._store(task, cancelled_outcome(task, worker=self._worker))
                await delivery.ack()
                return
            await self._work(task, delivery)
        except Settled:
            await delivery.ack()
        except Fenced as fenced:
            log.warning("%s; this attempt ends here", fenced)
        except asyncio.CancelledError:
            if task is not None and (task.run, task.task_index) in self._cancellations:
                await self._store(task, cancelled_outcome(task, worker=self._worker))
                await delivery.ack()
                return
            await delivery.nak()
            raise
        except BusError as error:
            log.warning("%s: %s; the task will be delivered again", delivery.subject, error)

    async def _work(self, task: Task, delivery: Delivery) -> None:
        name = f"{task.run}/{task.task_index}/{task.rollout_index}"
        with tracing.rollout(name, agent=task.agent, worker=self._worker, delivered=delivery.num_delivered) as span:
            outcome, journal = await self._made(task, delivery)
            if span is not None:
                span.set_attributes(_told(outcome))
        stored = await self._store(task, outcome)
        if not isinstance(stored, Rollout):
            await bury_failure(self._bus, "agent", task, delivery.subject, delivery.data)
        await delivery.ack()
        if journal is not None:
            await journal.drop()

    async def _made(self, task: Task, delivery: Delivery) -> tuple[Outcome, Journal | None]:
        started = time.monotonic()
        me = asyncio.current_task()
        assert me is not None
        self._in_work[me] = task
        try:
            return await self._outcome(task, delivery.num_delivered)
        finally:
            del self._in_work[me]
            self.busy_s += time.monotonic() - started

    async def _outcome(self, task: Task, num_delivered: int) -> tuple[Outcome, Journal | None]:
        if num_delivered <= TRUSTED_DELIVERIES:
            async with self._quarantine.trusted():
                return await self._attempts.outcome(task, num_delivered)
        async with self._quarantine.suspect() as alone:
            log.warning("delivered %d times, goes on %s", num_delivered, "alone" if alone else "with others like it")
            outcome, journal = await self._attempts.outcome(task, num_delivered, alone=alone)
            if journal is not None:
                self._quarantine.ended_well()
            return outcome, journal

    async def _read(self, delivery: Delivery) -> Task | None:
        try:
            task = await read_task(self._bus, delivery.data)
            if delivery.subject.split(".")[2:] != [task.run, task.agent]:
                raise BadMessage(f"run {task.run} and agent {task.agent} do not belong on {delivery.subject}")
            return task
        except (BadMessage, RecursionError) as error:
            reason = f"not a task: {error}"
            await bury(self._bus, "agent", delivery.subject, reason, delivery.data, sequence=delivery.sequence)
            await delivery.ack()
            return None

    async def _store(self, task: Task, outcome: Outcome) -> Outcome:
        """Store an outcome, or a failure in place of one that has no wire form; what was to be stored."""
        try:
            await self._outcomes.put(outcome, replaces=task.replaces, patience_s=STORE_PATIENCE_S)
        except BadMessage as error:
            unstorable = RolloutError(FailureClass.NOT_STORABLE, str(error), stage=Stage.STORE)
            common = {name: getattr(outcome, name) for name in COMMON}
            failure = failure_of(common, outcome.attempt, unstorable)
            await self._outcomes.put(failure, replaces=task.replaces, patience_s=STORE_PATIENCE_S)
            outcome = failure
        if isinstance(outcome, Rollout):
            self.num_done += 1
        else:
            self.num_failed += 1
            log.warning("%s at %s: %s", outcome.failure_class, outcome.stage, outcome.message)
        return outcome


def _told(outcome: Outcome) -> dict[str, str | float | int]:
    """What the span of a rollout tells of its end."""
    ended = {"gymq.attempt": outcome.attempt}
    if isinstance(outcome, Rollout):
        return {**ended, "gymq.reward": outcome.reward}
    return {**ended, "gymq.failure_class": str(outcome.failure_class), "gymq.stage": str(outcome.stage)}
