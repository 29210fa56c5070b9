"""The attempts at one rollout: the agent's loop run, and run again while a retry may help, to an outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from gymq.agent import Agent, Caller, Rollout, run_to_verdict
from gymq.authoring import current_call
from gymq.bus import Bus, BusError
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.rpc.quarantine import Suspect
from gymq.bus.weights.staleness import Staleness, StalenessLimit
from gymq.errors import GymqError
from gymq.execution.fencing import check_not_taken_over
from gymq.execution.journal import Journal
from gymq.failures import INTERRUPTED, SESSION_GONE, LoopBlocked, RolloutError, describe_author_error
from gymq.protocol.messages import (
    Failure,
    FailureClass,
    Outcome,
    Seeded,
    Stage,
    Task,
    Unresolved,
    VerifiedRollout,
)
from gymq.resources import Verdict

log = logging.getLogger("gymq.agent")

SUSPECTED_S = 30.0  # that a suspect runs, if it does not get further than before


class Settled(GymqError):
    """The rollout has an outcome already."""


class Attempts:
    """Runs one agent instance over tasks."""

    def __init__(self, bus: Bus, calls: Caller, agent: Agent, *, worker: str) -> None:
        self.agent = agent
        self._bus = bus
        self._calls = calls
        self._worker = worker
        self._outcomes = OutcomeStore(bus)
        self._stateless: dict[str, Seeded] = {}
        self._staleness = Staleness(bus)
        self._at_work: set[_Work] = set()

    async def start(self) -> None:
        """Learn of the updates of the model from now on."""
        if self.agent.options.model_server is not None:
            await self._staleness.follow(self.agent.options.model_server.name)

    def begun(self) -> dict[str, Any]:
        """Return what the pusher of new weights asks of the rollouts in flight, see `gymq.bus.weights.holding`."""
        server = self.agent.options.model_server
        if server is None:
            return {}
        num_begun = sum(work.rollout is not None and work.rollout.has_begun for work in self._at_work)
        is_held = self._staleness.is_held(server.name)
        return {"begun": {"model": server.name, "num_begun": num_begun, "is_held": is_held}}

    async def outcome(
        self, task: Task, num_delivered: int, suspect: Suspect | None = None
    ) -> tuple[Outcome, Journal | None]:
        """Run the agent, again after a failure that a retry may cure.

        Args:
            suspect: the place of a task in quarantine; cleared when the rollout gets further than before.

        Raises:
            Fenced: another agent process has the task by now.
            Settled: another agent process has stored an outcome.
        """
        with self._working_on(task) as work:
            staleness = await self._staleness_limit(task)
            if num_delivered > 1:
                await self._check_unsettled(task)  # it may have waited since it was looked for
            pause_s: float | None = None
            while True:
                # Calls end at the deadline and report their stage; the grace is for the agent's own code.
                limit = asyncio.timeout_at(work.deadline + 1.0)
                try:
                    if pause_s is not None:
                        await asyncio.sleep(pause_s)
                    reconnects = self._bus.reconnects
                    rollout = self._start_attempt(work, staleness)
                    has_journal = num_delivered > 1 or self.agent.journals(rollout)
                    if has_journal and (fatal := await self._open_journal(work, num_delivered, suspect)):
                        return work.failure(fatal), None
                    async with limit:
                        with staleness.interrupting(work.interrupting(limit)) if staleness else nullcontext():
                            verdict = await run_to_verdict(self.agent, rollout)
                    rollout.check_staleness()
                    return work.verified(verdict), work.journal
                except Settled:
                    raise
                except (BusError, asyncio.CancelledError):  # another process may have the task next
                    if work.journal is not None:
                        await work.journal.survived()
                    raise
                except (Exception, SystemExit, LoopBlocked) as error:
                    late = isinstance(error, TimeoutError) and limit.expired()  # else a time limit of the agent's own
                    failed = work.ended_by or work.deadline_exceeded() if late else self._failed(error)
                try:
                    if work.lacks_only_the_verdict(failed):
                        return await self._ended(work, work.unresolved(failed)), work.journal
                except RolloutError as stale:
                    failed = stale
                interrupted = not self._bus.is_connected or self._bus.reconnects != reconnects
                pause_s = work.pause_s(failed, interrupted=interrupted)
                if pause_s is None:
                    return await self._ended(work, work.failure(failed)), work.journal
                log.info("retrying after %s: %s", failed.failure_class, failed.message)
                work.attempt += 1

    @contextmanager
    def _working_on(self, task: Task) -> Iterator[_Work]:
        """Count a rollout among those in flight, and give all its calls its deadline."""
        work = _Work(task, self._worker, asyncio.get_running_loop().time() + task.timeout_s)
        current_call.set(replace(current_call.get(), rollout=work.rollout_id, deadline=work.deadline))
        self._at_work.add(work)
        try:
            yield work
        finally:
            self._at_work.discard(work)
            if work.clearing is not None:
                work.clearing.cancel()

    def _start_attempt(self, work: _Work, staleness: StalenessLimit | None) -> Rollout:
        work.start_attempt()
        work.rollout = Rollout(
            self._calls,
            rollout_id=work.rollout_id,
            row=work.task.row,
            options=self.agent.options,
            deadline=work.deadline,
            attempt=work.attempt,
            num_lost=work.num_lost,
            stateless=self._stateless,
            staleness=staleness,
        )
        return work.rollout

    async def _staleness_limit(self, task: Task) -> StalenessLimit | None:
        model = self.agent.options.model_server
        if model is None:
            return None
        return await self._staleness.limit(model.name, task.max_staleness)

    async def _open_journal(self, work: _Work, num_delivered: int, suspect: Suspect | None) -> RolloutError | None:
        """Open the journal of the next attempt: that of an earlier delivery, to resume, or a new one.

        Returns:
            The failure of a rollout that kills the processes that work on it; None: it may go on.
        """
        assert work.rollout is not None
        if work.journal is not None:
            if num_delivered > 1:
                # The process before may have ended the rollout late, and with it the session that failed here.
                await self._check_unsettled(work.task)
            await work.journal.start_attempt(work.attempt, work.num_failures)
        else:
            journal = Journal(self._bus, work.task, self._worker, suspect)
            if num_delivered > 1 or work.task.replaces is not None or work.task.resumed:
                try:
                    if fatal := await journal.take_over(is_redelivered=num_delivered > 1):
                        return RolloutError(FailureClass.REDELIVERED_TOO_OFTEN, fatal, stage=Stage.QUEUE)
                    # The process before may have finished it and dropped the journal before it was fenced off.
                    await self._check_unsettled(work.task)
                except (BusError, asyncio.CancelledError):
                    await journal.survived()
                    raise
                if journal.attempt:
                    log.info("resuming attempt %d", journal.attempt)
            work.resume(journal)
            if suspect is not None:
                work.clearing = asyncio.create_task(_clear_later(journal))
        work.rollout.recorder = work.journal
        return None

    async def _ended(self, work: _Work, outcome: Failure | Unresolved) -> Outcome:
        """Return an outcome without a verdict, unless another process has the rollout now.

        Raises:
            Fenced: another process has it.
        """
        if work.journal is not None:
            await work.journal.confirm()
        else:
            await check_not_taken_over(self._bus, work.task)
        return outcome

    async def _check_unsettled(self, task: Task) -> None:
        if await self._outcomes.is_settled(task):
            raise Settled

    def _failed(self, error: Exception | SystemExit | LoopBlocked) -> RolloutError:
        """Return what an error of the agent's loop comes to."""
        if isinstance(error, RolloutError):
            return error
        log.error("agent %s failed", self.agent.name, exc_info=error)
        text = describe_author_error(error)
        curable = isinstance(error, ImportError)
        return RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT, curable=curable)


class _Work:
    """The attempts at one rollout so far, and the outcomes that they can end in."""

    def __init__(self, task: Task, worker: str, deadline: float) -> None:
        self.task = task
        self.rollout_id = str(task.rollout_id)
        self.deadline = deadline  # on the event loop's clock, in seconds
        self.attempt = 0
        self.journal: Journal | None = None
        self.clearing: asyncio.Task[None] | None = None  # of a suspect
        self.rollout: Rollout | None = None  # of the attempt in progress
        self._worker = worker
        self._started_at = time.time()
        self._attempt_started = 0.0
        self.ended_by: RolloutError | None = None  # the update of the policy that ended the attempt
        self.num_failures = 0  # of its own
        self._lost_sessions = 0  # that others took with them
        self.num_lost = 0  # sessions that were lost during a call of the rollout
        self._interruptions = 0  # of the connection to NATS

    def start_attempt(self) -> None:
        """Begin to measure the next attempt."""
        self.rollout = self.ended_by = None
        self._attempt_started = asyncio.get_running_loop().time()

    def interrupting(self, limit: asyncio.Timeout) -> Callable[[RolloutError], None]:
        """Return what ends the attempt, through its time limit, when an update makes rollouts start over."""
        rollout = self.rollout
        assert rollout is not None

        def interrupt(error: RolloutError) -> None:
            if rollout.has_begun and not limit.expired():
                self.ended_by = error
                limit.reschedule(asyncio.get_running_loop().time())

        return interrupt

    def resume(self, journal: Journal) -> None:
        """Count the attempts that are in the journal of an earlier delivery."""
        assert self.rollout is not None
        self.rollout.has_begun = journal.num_recorded > 0
        self.journal = journal
        self.num_failures = max(self.num_failures, journal.num_failures)
        self.attempt = self.rollout.attempt = journal.attempt

    def pause_s(self, failed: RolloutError, *, interrupted: bool) -> float | None:
        """Return the seconds until the next attempt; None: there is none."""
        retry = failed.retries.rollout
        if retry is None:
            return None
        left_s = self.deadline - asyncio.get_running_loop().time()
        if interrupted:
            self._interruptions += 1
            return INTERRUPTED.pause_s(self._interruptions, left_s=left_s)
        if failed.is_innocent:
            self._lost_sessions += 1
            return SESSION_GONE.pause_s(self._lost_sessions, left_s=left_s)
        self.num_lost += failed.failure_class is FailureClass.SESSION_LOST
        self.num_failures += 1
        return retry.pause_s(self.num_failures, left_s=left_s)

    def deadline_exceeded(self) -> RolloutError:
        text = f"not finished within {self.task.timeout_s:g} s"
        return RolloutError(FailureClass.DEADLINE_EXCEEDED, text, stage=Stage.AGENT)

    def verified(self, verdict: Verdict) -> VerifiedRollout:
        """Return the outcome of an attempt that has a verdict."""
        assert self.rollout is not None
        return VerifiedRollout(
            **self._common(), response=self.rollout.response, reward=verdict.reward, verdict=verdict.fields
        )

    def failure(self, error: RolloutError) -> Failure:
        """Return the outcome of a rollout that is not tried again."""
        return Failure(**self._common(), **error.as_fields())

    def lacks_only_the_verdict(self, error: RolloutError) -> bool:
        """Return whether the response can be kept and scored later; a verdict on lost state needs a new attempt.

        Raises:
            RolloutError: it could be kept, but is too far behind the policy.
        """
        if self.rollout is None or not self.rollout.has_response or error.stage is not Stage.VERIFY:
            return False
        if error.failure_class is FailureClass.SESSION_LOST:
            return False
        self.rollout.check_staleness()
        return True

    def unresolved(self, error: RolloutError) -> Unresolved:
        """Return the outcome of an attempt that has all but a verdict."""
        assert self.rollout is not None
        return Unresolved(**self._common(), **error.as_fields(), response=self.rollout.response)

    def _common(self) -> dict[str, Any]:
        task, rollout = self.task, self.rollout
        common: dict[str, Any] = {
            "run": task.run,
            "task_index": task.task_index,
            "rollout_index": task.rollout_index,
            "num_rollouts": task.num_rollouts,
            "agent": task.agent,
            "row": task.row,
            "worker": self._worker,
            "started_at": self._started_at,
            "duration_s": asyncio.get_running_loop().time() - self._attempt_started,
            "attempt": self.attempt,
        }
        if rollout is not None:
            common |= {"row": rollout.row, "policy_versions": rollout.policy_versions, "timings": rollout.timings}
        return common


async def _clear_later(journal: Journal) -> None:
    """Clear a suspect that has not killed the process in the time in which it would have."""
    await asyncio.sleep(SUSPECTED_S)
    await journal.survived()
