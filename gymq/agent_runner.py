"""Runs an agent over the tasks of its queue: as many at once as there are slots, each ending in one stored outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from typing import Any

from gymq import parts, streams, subjects
from gymq.agent import Agent, Rollout
from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus, BusError
from gymq.calls import Calls
from gymq.dead_letters import bury
from gymq.jetstream import Delivery, JetStream, Pull
from gymq.journal import Fenced, Journal
from gymq.messages import (
    BadMessage,
    Claim,
    Failure,
    FailureClass,
    Outcome,
    Stage,
    Task,
    Unresolved,
    decoder,
)
from gymq.messages import Rollout as RolloutMessage
from gymq.outcome_store import OutcomeStore
from gymq.outcomes import RolloutError
from gymq.resources import Verdict

log = logging.getLogger("gymq.agent")

MAX_TRIES = 3  # of a rollout, within one delivery of its task
LONGEST_PAUSE_S = 5.0  # between tries
DEADLINE_GRACE_S = 1.0  # calls end at the deadline by themselves and tell at which stage; the agent's own code after it
STORE_PATIENCE_S = 600.0
ASK_AT_ONCE = 256
EMPTY_PAUSE_S = 0.1  # before asking again where nothing came: a queue that is gone refuses at once

_decode_task = decoder(Task, Claim)


class AgentRunner:
    """Takes tasks of one agent instance from the queue."""

    def __init__(self, bus: Bus, calls: Calls, agent: Agent, *, worker: str) -> None:
        self.agent = agent
        self.num_done = 0
        self.num_failed = 0
        self.busy_s = 0.0
        self._num_arrived = 0
        self._bus = bus
        self._calls = calls
        self._outcomes = OutcomeStore(bus)
        self._worker = worker
        self._stateless: set[str] = set()
        self._slots = agent.options.max_concurrency or agent.max_concurrency
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._pull = Pull(bus, streams.TASKS, streams.agent_consumer(agent.name), self._on_delivery)
        self._room = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._draining = False

    def stats(self) -> dict[str, Any]:
        return {
            "num_requests": self.num_done + self.num_failed,
            "num_errors": self.num_failed,
            "processing_s": self.busy_s,
            "load": len(self._running),
        }

    async def start(self) -> None:
        """Begin to take tasks.

        Raises:
            BusError: the agent has no queue.
        """
        self._pull.on_end = self._room.set
        ack_wait_s = await streams.ack_wait_s(JetStream(self._bus), self.agent.name)
        self._bus.on_reconnect(self._pull.reset)
        await self._pull.start()
        self._asking = asyncio.create_task(self._ask())
        self._beating = asyncio.create_task(self._beat(ack_wait_s / 3))

    async def drain(self, deadline_s: float) -> None:
        """Take no more tasks, finish those running within `deadline_s`, give back the rest."""
        self._draining = True
        if self._asking is not None:
            self._asking.cancel()
        await self._pull.stop()
        if self._running:
            await asyncio.wait(list(self._running), timeout=deadline_s)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=5.0)
        if self._beating is not None:
            self._beating.cancel()

    async def _ask(self) -> None:
        """Keep as many tasks asked for as there are free slots, in batches."""
        arrived_before = -1
        while True:
            self._room.clear()
            free = self._slots - len(self._running)
            wanted = min(free, ASK_AT_ONCE)
            outstanding = self._pull.outstanding
            # Asking again for every single free slot would double the messages of a busy agent.
            if wanted - outstanding >= max(1, wanted // 2):
                if arrived_before == self._num_arrived:
                    await asyncio.sleep(EMPTY_PAUSE_S)
                arrived_before = self._num_arrived
                try:
                    await self._pull.ask(wanted - outstanding)
                except BusError as error:
                    log.warning("cannot ask for tasks: %s", error)
                    await asyncio.sleep(1.0)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(Pull.EXPIRES_S):
                        await self._room.wait()

    async def _beat(self, every_s: float) -> None:
        """Tell the server that the tasks in hand are being worked on."""
        while True:
            await asyncio.sleep(every_s)
            for delivery in list(self._running.values()):
                try:
                    await delivery.in_progress()
                except BusError:
                    break

    def _on_delivery(self, delivery: Delivery) -> None:
        self._num_arrived += 1
        task = asyncio.get_running_loop().create_task(self._handle(delivery))
        self._running[task] = delivery
        task.add_done_callback(self._finished)
        self._room.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._room.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("task not settled, it will be delivered again", exc_info=task.exception())

    async def _handle(self, delivery: Delivery) -> None:
        if self._draining:
            await delivery.nak()
            return
        try:
            task = await self._read(delivery)
            if task is None:
                return
            if await self._is_done(task):
                await delivery.ack()
                return
            started = time.monotonic()
            outcome, journal = await self._outcome(task, delivery.num_delivered)
            self.busy_s += time.monotonic() - started
            await self._store(task, outcome)
            await delivery.ack()
            if journal is not None:
                await journal.drop()
        except Fenced as fenced:
            log.warning("%s; this attempt ends here", fenced)
        except asyncio.CancelledError:
            await delivery.nak()
            raise
        except BusError as error:
            log.warning("%s: %s; the task will be delivered again", delivery.subject, error)

    async def _read(self, delivery: Delivery) -> Task | None:
        try:
            message = _decode_task(delivery.data)
            if isinstance(message, Claim):
                message = _decode_task(await parts.get(self._bus, message))
            if not isinstance(message, Task):
                raise BadMessage("a claim on a claim")
            if subjects.tasks(message.run, message.agent) != delivery.subject:
                raise BadMessage(f"run {message.run} and agent {message.agent} do not belong on {delivery.subject}")
            return message
        except (BadMessage, RecursionError) as error:
            await bury(self._bus, "agent", delivery.subject, f"not a task: {error}", delivery.data)
            await delivery.ack()
            return None

    async def _is_done(self, task: Task) -> bool:
        stored = await self._outcomes.find(task.run, task.task_index, task.rollout_index)
        return stored is not None and stored.sequence != task.replaces

    async def _outcome(self, task: Task, num_delivered: int) -> tuple[Outcome, Journal | None]:
        """Run the agent, again after a failure that another try may cure.

        Raises:
            BusError: what the agent did cannot be recorded.
            Fenced: another agent process has the task by now.
        """
        loop = asyncio.get_running_loop()
        rollout_id = f"{task.run}/{task.task_index}/{task.rollout_index}"
        deadline = loop.time() + task.timeout_s
        current_call.set(CurrentCall(rollout_id, deadline))
        common: dict[str, Any] = {
            "run": task.run,
            "task_index": task.task_index,
            "rollout_index": task.rollout_index,
            "num_rollouts": task.num_rollouts,
            "agent": task.agent,
            "row": task.row,
            "worker": self._worker,
            "started_at": time.time(),
        }
        journal: Journal | None = None
        attempt = tries = 0
        pause = 0.1
        while True:
            rollout: Rollout | None = None
            started = loop.time()
            reconnects = self._bus.reconnects
            try:
                rollout = Rollout(
                    self._calls,
                    rollout_id=rollout_id,
                    row=task.row,
                    options=self.agent.options,
                    deadline=deadline,
                    attempt=attempt,
                    stateless=self._stateless,
                )
                if self.agent.journals(rollout):
                    rollout.recorder = journal = await self._journal(task, journal, num_delivered, attempt)
                    tries += journal.attempt - attempt
                    attempt = rollout.attempt = journal.attempt
                verdict = await self._verdict(rollout, deadline, task.timeout_s)
                result = RolloutMessage(
                    **common,
                    attempt=attempt,
                    duration_s=loop.time() - started,
                    response=rollout.response,
                    reward=verdict.reward,
                    verdict=verdict.members,
                )
                return result, journal
            except BusError:
                raise
            except RolloutError as error:
                failed = error
            except (Exception, SystemExit) as error:
                log.exception("agent %s failed", self.agent.name)
                failed = RolloutError(FailureClass.AGENT_FAILED, f"{type(error).__name__}: {error}", stage=Stage.AGENT)
            common["duration_s"] = loop.time() - started
            if rollout is not None and rollout.has_response and _only_verdict_missing(failed):
                return _unresolved(common, attempt, failed, rollout), journal
            if self._bus.is_connected and self._bus.reconnects == reconnects:
                tries += 1  # what breaks while NATS is away says nothing about the rollout
            if not failed.retryable or tries >= MAX_TRIES or loop.time() + pause >= deadline:
                return _failure(common, attempt, failed), journal
            log.info("trying again after %s: %s", failed.failure_class, failed.message)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 4, LONGEST_PAUSE_S)
            attempt += 1

    async def _verdict(self, rollout: Rollout, deadline: float, timeout_s: float) -> Verdict:
        """Run the agent's loop once.

        Raises:
            RolloutError: it took too long, or returned nonsense.
            Exception: whatever else the loop raises.
        """
        try:
            async with asyncio.timeout_at(deadline + DEADLINE_GRACE_S) as limit:
                verdict = await self.agent.run(rollout)
        except TimeoutError:
            if not limit.expired():
                raise  # a time limit of the agent's own
            text = f"not finished within {timeout_s:g} s"
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, text, stage=Stage.AGENT) from None
        if not isinstance(verdict, Verdict) or not math.isfinite(verdict.reward):
            text = f"{self.agent.name} returned {verdict!r:.200}, no Verdict with a finite reward"
            raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT)
        return verdict

    async def _journal(self, task: Task, before: Journal | None, num_delivered: int, attempt: int) -> Journal:
        """The journal for the next attempt: that of an earlier delivery, gone on with, or one that starts anew."""
        if before is not None:
            await before.start_attempt(attempt)
            return before
        journal = Journal(self._bus, task.run, task.task_index, task.rollout_index, self._worker)
        if num_delivered > 1:
            await journal.take_over()
            if journal.attempt:
                log.info("going on with attempt %d", journal.attempt)
        return journal

    async def _store(self, task: Task, outcome: Outcome) -> None:
        try:
            await self._outcomes.put(outcome, replaces=task.replaces, patience_s=STORE_PATIENCE_S)
        except BadMessage as error:
            unstorable = RolloutError(FailureClass.NOT_STORABLE, str(error), stage=Stage.STORE)
            common = {name: getattr(outcome, name) for name in _COMMON}
            failure = _failure(common, outcome.attempt, unstorable)
            await self._outcomes.put(failure, replaces=task.replaces, patience_s=STORE_PATIENCE_S)
            outcome = failure
        if isinstance(outcome, RolloutMessage):
            self.num_done += 1
        else:
            self.num_failed += 1
            log.warning("%s at %s: %s", outcome.failure_class, outcome.stage, outcome.message)


_COMMON = ("run", "task_index", "rollout_index", "num_rollouts", "agent", "row", "worker", "started_at", "duration_s")


def _failure(common: dict[str, Any], attempt: int, error: RolloutError) -> Failure:
    return Failure(
        **common,
        attempt=attempt,
        failure_class=error.failure_class,
        stage=error.stage or Stage.AGENT,
        message=error.message[:4000],
        retryable=error.retryable,
    )


def _unresolved(common: dict[str, Any], attempt: int, error: RolloutError, rollout: Rollout) -> Unresolved:
    return Unresolved(
        **common,
        attempt=attempt,
        failure_class=error.failure_class,
        message=error.message[:4000],
        retryable=error.retryable,
        response=rollout.response,
    )


def _only_verdict_missing(error: RolloutError) -> bool:
    """Whether the response can be kept and scored later; a verdict on lost state needs a new attempt."""
    return error.stage is Stage.VERIFY and error.failure_class is not FailureClass.SESSION_LOST
