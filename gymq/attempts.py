"""The attempts at one rollout: the agent's loop run, and run again while another try may help, to an outcome."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

from gymq.agent import Agent, Caller, Rollout
from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus, BusError
from gymq.journal import DiedAlone, Journal
from gymq.messages import BadMessage, Failure, FailureClass, Outcome, Stage, Task, Unresolved, check_members
from gymq.messages import Rollout as RolloutMessage
from gymq.outcome_store import OutcomeStore
from gymq.outcomes import INTERRUPTED, SESSION_GONE, RolloutError, SessionGone, raised_by_author
from gymq.resources import Verdict
from gymq.staleness import Staleness, StalenessLimit

log = logging.getLogger("gymq.agent")

DEADLINE_GRACE_S = 1.0  # calls end at the deadline by themselves and tell at which stage; the agent's own code after it


class Settled(Exception):
    """The rollout has an outcome already."""


class Attempts:
    """Runs one agent instance over tasks."""

    def __init__(self, bus: Bus, calls: Caller, agent: Agent, *, worker: str) -> None:
        self.agent = agent
        self._bus = bus
        self._calls = calls
        self._worker = worker
        self._outcomes = OutcomeStore(bus)
        self._stateless: set[str] = set()
        self._staleness = Staleness(bus)

    async def outcome(
        self, task: Task, num_delivered: int, *, alone: bool | None = None
    ) -> tuple[Outcome, Journal | None]:
        """Run the agent, again after a failure that another try may cure.

        Args:
            alone: of a task in quarantine, whether the process works on nothing else.

        Raises:
            BusError: what the agent did cannot be recorded.
            Fenced: another agent process has the task by now.
            Settled: another agent process has stored an outcome.
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
        staleness = await self._staleness_limit(task)
        journal: Journal | None = None
        attempt = 0
        tries = _Tries()
        if num_delivered > 1:
            await self._check_unsettled(task)  # it may have waited since it was looked for
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
                    staleness=staleness,
                )
                if alone is not None or self.agent.journals(rollout):
                    rollout.recorder = journal = await self._journal(
                        task, journal, num_delivered, attempt, alone=bool(alone)
                    )
                    tries.own += journal.attempt - attempt
                    attempt = rollout.attempt = journal.attempt
                verdict = await self._verdict(rollout, deadline, task.timeout_s)
                rollout.check_staleness()
                common |= {"duration_s": loop.time() - started, **_of_calls(rollout)}
                result = RolloutMessage(
                    **common,
                    attempt=attempt,
                    response=rollout.response,
                    reward=verdict.reward,
                    verdict=verdict.members,
                )
                return result, journal
            except (BusError, Settled):
                raise
            except DiedAlone as error:
                return failure_of(common | {"duration_s": 0.0}, attempt, error), None
            except RolloutError as error:
                failed = error
            except (Exception, SystemExit) as error:
                log.exception("agent %s failed", self.agent.name)
                failed = RolloutError(FailureClass.AGENT_FAILED, raised_by_author(error), stage=Stage.AGENT)
            common["duration_s"] = loop.time() - started
            if rollout is not None:
                common |= _of_calls(rollout)
            if rollout is not None and rollout.has_response and _only_verdict_missing(failed):
                try:
                    rollout.check_staleness()
                    return _unresolved(common, attempt, failed, rollout), journal
                except RolloutError as stale:
                    failed = stale
            interrupted = not self._bus.is_connected or self._bus.reconnects != reconnects
            pause_s = tries.pause_s(failed, interrupted=interrupted, left_s=deadline - loop.time())
            if pause_s is None:
                return failure_of(common, attempt, failed), journal
            log.info("trying again after %s: %s", failed.failure_class, failed.message)
            await asyncio.sleep(pause_s)
            attempt += 1

    async def _staleness_limit(self, task: Task) -> StalenessLimit | None:
        model = self.agent.options.model_server
        if task.max_staleness is None or model is None:
            return None
        return await self._staleness.limit(model.name, task.max_staleness)

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
        try:
            check_members(verdict.members, "$.verdict")
        except BadMessage as error:
            text = f"{self.agent.name} returned a verdict with a member that has no wire form: {error}"
            raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT) from None
        return verdict

    async def _journal(
        self, task: Task, before: Journal | None, num_delivered: int, attempt: int, *, alone: bool
    ) -> Journal:
        """The journal for the next attempt: that of an earlier delivery, gone on with, or one that starts anew."""
        if before is not None:
            await before.start_attempt(attempt)
            return before
        journal = Journal(self._bus, task, self._worker)
        if num_delivered > 1 or task.replaces is not None:
            await journal.take_over(alone=alone)
            # Whoever had the task may have finished it before it was fenced off, and dropped the journal.
            await self._check_unsettled(task)
            if journal.attempt:
                log.info("going on with attempt %d", journal.attempt)
        return journal

    async def _check_unsettled(self, task: Task) -> None:
        if await self._outcomes.settles(task):
            raise Settled


class _Tries:
    """The failed attempts at one rollout, by who is to blame."""

    def __init__(self) -> None:
        self.own = 0
        self._lost_sessions = 0  # that others took with them
        self._interruptions = 0  # of the connection to NATS

    def pause_s(self, failed: RolloutError, *, interrupted: bool, left_s: float) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        retry = failed.retries.rollout
        if retry is None:
            return None
        if interrupted:
            self._interruptions += 1
            return INTERRUPTED.pause_s(self._interruptions, left_s=left_s)
        if isinstance(failed, SessionGone):
            self._lost_sessions += 1
            return SESSION_GONE.pause_s(self._lost_sessions, left_s=left_s)
        self.own += 1
        return retry.pause_s(self.own, left_s=left_s)


COMMON = (
    *("run", "task_index", "rollout_index", "num_rollouts", "agent", "row"),
    *("worker", "started_at", "duration_s", "policy_versions", "timings"),
)


def _of_calls(rollout: Rollout) -> dict[str, Any]:
    """What an outcome tells of the calls of its attempt."""
    return {"policy_versions": rollout.policy_versions, "timings": rollout.timings}


def failure_of(common: dict[str, Any], attempt: int, error: RolloutError) -> Failure:
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
