"""Runs an agent over the tasks of its queue; each ends in one stored outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from gymq.agent import Agent, Caller
from gymq.authoring import current_call
from gymq.bus import Bus
from gymq.bus.pull import Delivery
from gymq.bus.queue.cancel import Cancellations
from gymq.bus.queue.dead_letters import dead_letter_failure
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.task_queue import TaskQueue
from gymq.bus.queue.tasks import cancelled_outcome
from gymq.bus.rpc import tracing
from gymq.bus.rpc.admission import KvBudget
from gymq.bus.rpc.process_reports import limit_reached
from gymq.bus.rpc.quarantine import TRUSTED_DELIVERIES, Quarantine, Suspect
from gymq.execution.attempts import Attempts, Settled
from gymq.execution.fencing import Fenced
from gymq.execution.journal import Journal
from gymq.failures import RolloutError
from gymq.protocol.messages import BadMessage, Failure, FailureClass, Outcome, Stage, Task, VerifiedRollout

log = logging.getLogger("gymq.agent")

STORE_PATIENCE_S = 600.0


class AgentRunner:
    """Takes tasks of one agent instance from the queue."""

    def __init__(
        self,
        bus: Bus,
        calls: Caller,
        agent: Agent,
        *,
        worker: str,
        quarantine: Quarantine | None = None,
        admission: defaultdict[str, KvBudget] | None = None,
    ) -> None:
        """Prepare to run the tasks of an agent.

        Args:
            quarantine: that of the whole process, where several agents share it.
            admission: the same, of the models that `calls` asks.
        """
        self.num_done = 0
        self.num_failed = 0
        self.busy_s = 0.0
        self._bus = bus
        self._outcomes = OutcomeStore(bus)
        self._attempts = Attempts(bus, calls, agent, worker=worker)
        self._cancellations = Cancellations(bus, self._cancel)
        self._in_flight: dict[asyncio.Task[Any], Task] = {}
        self._quarantine = quarantine or Quarantine()
        self._worker = worker
        self._slots = agent.options.max_concurrency or agent.max_concurrency
        model = agent.options.model_server
        self._budget = KvBudget() if admission is None or model is None else admission[model.name]
        self._queue = TaskQueue(bus, agent.name, self._slots, self._handle, room=self._room)

    def stats(self) -> dict[str, Any]:
        return {
            "num_requests": self.num_done + self.num_failed,
            "num_errors": self.num_failed,
            "processing_s": self.busy_s,
            "load": self._queue.load,
            **self._attempts.begun(),
        }

    def held_back(self) -> dict[str, int]:
        """Return how many tasks wait for a slot, or rollouts for their next turn, by the limit that holds them back."""
        agent = self._attempts.agent
        count = self._queue.num_held_back + self._budget.num_paused
        reason = limit_reached(agent.name, self._slots, "rollouts")
        if agent.options.model_server is not None:
            model, most = agent.options.model_server.name, self._budget.most_in_flight
            if self._budget.room() == 0:
                reason = f"{model}: the KV cache is full"
            elif most is not None and self._queue.load >= most:
                reason = f"{model} has enough to do"
        cannot = f"{agent.name} cannot read tasks of another version of gymq; start agents of that version"
        unread = {f"{cannot} ({problem[:80]})": number for problem, number in self._queue.unread().items()}
        return unread | ({reason: count} if count else {})

    def _room(self) -> int | None:
        """Return how many more rollouts may start; None: any number."""
        room, most = self._budget.room(), self._budget.most_in_flight
        if most is None:
            return room
        left = max(0, most - self._queue.load)
        return left if room is None else min(left, room)

    async def start(self) -> None:
        """Begin to take tasks.

        Raises:
            BusError: the agent has no queue.
        """
        await self._cancellations.start()
        await self._attempts.start()
        await self._queue.start()

    async def drain(self, deadline_s: float) -> None:
        """Take no more tasks, finish those running within `deadline_s`, requeue the rest."""
        await self._queue.drain(deadline_s)

    def _cancel(self, run: str, task_index: int | None) -> None:
        for working, task in list(self._in_flight.items()):
            if task.run == run and task_index in (None, task.task_index):
                working.cancel()

    async def _handle(self, task: Task, delivery: Delivery) -> None:
        journal: Journal | None = None
        try:
            if await self._outcomes.is_settled(task):
                await self._end_settled(task, delivery)
                return
            outcome: Outcome
            if await self._cancellations.is_still_cancelled(task.run, task.task_index):
                outcome = cancelled_outcome(task, worker=self._worker)
            else:
                async with self._at_work(task, delivery) as (suspect, span):
                    outcome, journal = await self._attempts.outcome(task, delivery.num_delivered, suspect)
                    if suspect is not None and journal is not None:
                        suspect.clear()
                    if span is not None:
                        span.set_attributes(_span_attributes(outcome))
            stored = await self._store(task, outcome)
            if not isinstance(stored, VerifiedRollout):
                await dead_letter_failure(self._bus, "agent", task, delivery.subject, delivery.data)
            await delivery.ack()
            if journal is not None:
                await journal.drop()
        except Settled:
            await self._end_settled(task, delivery)
        except Fenced as fenced:
            log.warning("%s; this attempt ends here", fenced)
        except asyncio.CancelledError:
            if (task.run, task.task_index) not in self._cancellations:
                raise
            await self._store(task, cancelled_outcome(task, worker=self._worker))
            await delivery.ack()
            if journal is not None:
                await journal.drop()

    async def _end_settled(self, task: Task, delivery: Delivery) -> None:
        """Acknowledge a task that has its outcome."""
        if delivery.num_delivered > 1:
            # The process before may have stored a failure and died before it wrote the dead letter.
            await dead_letter_failure(self._bus, "agent", task, delivery.subject, delivery.data)
        await delivery.ack()

    @asynccontextmanager
    async def _at_work(
        self, task: Task, delivery: Delivery
    ) -> AsyncIterator[tuple[Suspect | None, tracing.TraceSpan | None]]:
        """Give a task its place in this process: in the trace, among the tasks in flight, alone if it is a suspect.

        Yields:
            Its place in quarantine, None for a task that is not suspect; and the span, if there are traces.
        """
        started = time.monotonic()
        me = asyncio.current_task()
        assert me is not None
        suspect = delivery.num_delivered > TRUSTED_DELIVERIES
        if suspect:
            log.warning("delivered %d times; runs in quarantine", delivery.num_delivered)
        with tracing.rollout(
            str(task.rollout_id), agent=task.agent, worker=self._worker, delivered=delivery.num_delivered
        ) as span:
            self._in_flight[me] = task
            self._budget.start(str(task.rollout_id), current_call.get().precedence.priority)
            try:
                async with self._quarantine.suspect() if suspect else self._quarantine.trusted() as place:
                    yield place, span
            finally:
                del self._in_flight[me]
                self._budget.end(str(task.rollout_id))
                self.busy_s += time.monotonic() - started

    async def _store(self, task: Task, outcome: Outcome) -> Outcome:
        """Store an outcome, or a failure in place of one that has no wire form; return what was offered."""
        put = partial(self._outcomes.put, replaces=task.replaces, patience_s=STORE_PATIENCE_S)
        try:
            await put(outcome)
        except BadMessage as error:
            unstorable = RolloutError(FailureClass.NOT_STORABLE, str(error), stage=Stage.STORE).as_fields()
            common = {name: getattr(outcome, name) for name in Failure.__struct_fields__ if name not in unstorable}
            outcome = Failure(**common, **unstorable)
            await put(outcome)
        if isinstance(outcome, VerifiedRollout):
            self.num_done += 1
        else:
            self.num_failed += 1
            log.warning("%s at %s: %s", outcome.failure_class, outcome.stage, outcome.message)
        return outcome


def _span_attributes(outcome: Outcome) -> dict[str, str | float | int]:
    ended = {"gymq.attempt": outcome.attempt}
    if isinstance(outcome, VerifiedRollout):
        return {**ended, "gymq.reward": outcome.reward}
    return {**ended, "gymq.failure_class": str(outcome.failure_class), "gymq.stage": str(outcome.stage)}
