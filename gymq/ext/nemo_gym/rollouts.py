"""Requests as tasks: queued, awaited by notification, and cancelled when no client waits any more."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NamedTuple

from gymq.bus import Bus, BusError, streams
from gymq.bus.discovery import UnservedAgents
from gymq.bus.queue.client import SUBMIT_PATIENCE_S, QueueClient
from gymq.bus.queue.outcome_store import UNKNOWN_AGENT
from gymq.data.failure_status import StatusError
from gymq.data.jsonl import parse_object
from gymq.data.rows import digest_of
from gymq.ext.nemo_gym import keys
from gymq.processes.background import RunningTasks
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, FailureClass, Outcome, Task, VerifiedRollout
from gymq.protocol.subjects import RolloutId

log = logging.getLogger("gymq.ext.nemo_gym")

OPEN_EVERY_S = 1.0  # the run of rows without keys, in case that it was deleted


class _TaskIdentity(NamedTuple):
    """The row and agent that a task was made for."""

    agent: str
    digest: str  # of the row; empty where there is no key
    replaces: int | None = None  # stream sequence of the failure that does not count any more

    def check(self, other: _TaskIdentity) -> None:
        """Check whether a key that both have means the same rollout."""
        if (self.agent, self.digest) != (other.agent, other.digest):
            text = f"the {keys.HEADER} of this request belongs to another row, or to the same one at another agent"
            raise StatusError(422, "key_reused", text)


class _Waiting:
    """A rollout that is in the queue or in work."""

    def __init__(self, asked: _TaskIdentity) -> None:
        self.asked = asked
        self.submitting: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # The client that waited may be gone when it fails.
        self.outcome.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def fail(self, error: StatusError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class PendingRollout:
    """A rollout that was asked for."""

    def __init__(self, rollouts: Rollouts, at: RolloutId, waiting: _Waiting) -> None:
        self._rollouts = rollouts
        self._at = at
        self._waiting = waiting

    async def outcome(self) -> Outcome:
        """Return the outcome; cancelling the wait cancels the rollout too, unless it has a key.

        Raises:
            StatusError: 504 if it took too long; 500 if there is no agent or no queue; 503 if the bridge is shutting
                down.
        """
        return await self._rollouts.wait(self._at, self._waiting)


class Rollouts:
    """Rolls out rows for clients that wait. Everything is stored as for a collection, under two runs.

    Rows without a key belong to the run `<name>-<start>`, numbered in the order of arrival; its unfinished rollouts are
    cancelled when the bridge shuts down. Rows with a key belong to `<name>-keyed`, at indices derived from the key.
    """

    def __init__(self, bus: Bus, name: str, *, rollout_timeout_s: float, queue_timeout_s: float) -> None:
        self.run = f"{name}-{secrets.token_hex(4)}"
        self.keyed_run = f"{name}-keyed"
        self._bus = bus
        self._js = bus.js
        self._queue = QueueClient(bus, submitter="bridge")
        self._name = name
        self._rollout_timeout_s = rollout_timeout_s
        self._queue_timeout_s = queue_timeout_s
        self._next_index = 0
        self._opened_at = -math.inf  # the run of rows without keys
        self._waiting: dict[RolloutId, _Waiting] = {}
        self._num_cancelling = 0  # rollouts that no client waits for, and whose cancellation is not stored yet
        # Tasks with keys for which no request waits, such as those of an earlier bridge.
        self._queued: dict[RolloutId, _TaskIdentity] = {}
        self._fetching = asyncio.Semaphore(16)
        self._following = AsyncExitStack()
        self._background = RunningTasks()
        self._unserved = UnservedAgents(bus, after_s=60.0)
        self._stopped = False

    @property
    def num_waiting(self) -> int:
        """Number of rollouts that are queued or in flight."""
        return len(self._waiting)

    async def start(self) -> None:
        """Follow both runs, and take over what an earlier bridge of this name has queued under keys.

        Raises:
            BusError
        """
        for run in (self.run, self.keyed_run):
            look_again = partial(self._look_again, run)
            await self._following.enter_async_context(self._queue.follow(run, self._on_stored, look_again))
        async for _, task in self._queue.queued(self.keyed_run):
            asked = _TaskIdentity(task.agent, digest_of(parse_object(task.row)), task.replaces)
            self._queued[task.rollout_id] = asked
        self._background.start(self._watch())

    async def cancel_orphans(self) -> None:
        """Cancel the rollouts of a killed bridge with this name; its callers are gone.

        Raises:
            BusError
        """
        earlier = re.compile(rf"{re.escape(self._name)}-[0-9a-f]{{8}}")
        async for stored in self._js.read(streams.RUNS, subjects.RUN.wildcard):
            run = stored.subject.rpartition(".")[2]
            if earlier.fullmatch(run) and run != self.run and await anext(self._queue.queued(run), None) is not None:
                log.warning("cancelling what is left of %s", run)
                await self._cancel(run, None)

    async def stop(self) -> None:
        """Fail all waiting requests. Rollouts with a key continue, the others are cancelled."""
        self._stopped = True
        for task in list(self._background):
            task.cancel()
        unfinished = self._num_cancelling or any(run == self.run for run, _, _ in self._waiting)
        for waiting in self._waiting.values():
            waiting.fail(StatusError(503, "shutting_down", "the bridge is shutting down"))
        if unfinished:
            await self._cancel(self.run, None)
        await self._following.aclose()

    async def roll_out(self, row: bytes, agent: str, key: str | None = None) -> Outcome:
        """Begin a rollout and wait for its outcome; see `begin` and `PendingRollout.outcome`."""
        return await (await self.begin(row, agent, key)).outcome()

    async def begin(self, row: bytes, agent: str, key: str | None = None) -> PendingRollout:
        """Put a row into the queue. Nothing here keeps it longer than until the queue has it.

        Args:
            row: JSON text of an object.
            key: rows with the same key are rolled out once.

        Raises:
            StatusError: 422 the key was used for another row or agent; 500 the outcomes cannot be read.
        """
        if key is None:
            at = RolloutId(self.run, self._next_index, 0)
            self._next_index += 1
            return PendingRollout(self, at, self._begin(at, row, _TaskIdentity(agent, "")))
        at = RolloutId(self.keyed_run, *keys.indices_of(key))
        asked = _TaskIdentity(agent, digest_of(parse_object(row)))
        if at not in self._waiting:
            found = await self._find(at)
            if found is not None:
                sequence, outcome = found
                if outcome.agent != UNKNOWN_AGENT:  # otherwise it cannot be read, and is made again
                    asked.check(_TaskIdentity(outcome.agent, digest_of(parse_object(outcome.row))))
                if isinstance(outcome, VerifiedRollout) or not (outcome.retryable or outcome.curable):
                    ended = _Waiting(asked)
                    ended.outcome.set_result(outcome)
                    return PendingRollout(self, at, ended)
                asked = asked._replace(replaces=sequence)
        # Another request with the key may have begun while this one looked.
        if at in self._waiting:
            asked.check(self._waiting[at].asked)
        elif at in self._queued:
            asked.check(self._queued[at])
        waiting = self._waiting.get(at) or self._begin(at, row, asked)
        return PendingRollout(self, at, waiting)

    async def wait(self, at: RolloutId, waiting: _Waiting) -> Outcome:
        """Wait for an outcome; see `PendingRollout.outcome`."""
        try:
            return await self._wait(waiting)
        except (asyncio.CancelledError, StatusError):
            if at.run == self.run and self._waiting.pop(at, None) is not None and not self._stopped:
                if waiting.submitting is not None:
                    waiting.submitting.cancel()
                self._num_cancelling += 1
                self._background.start(self._cancel_one(at))
            raise

    def _begin(self, at: RolloutId, row: bytes, asked: _TaskIdentity) -> _Waiting:
        waiting = self._waiting[at] = _Waiting(asked)
        if self._queued.pop(at, None) == asked:
            self._background.start(self._fetch(at))  # it may have ended since the queue was read
        else:  # nothing is queued, or it has failed by now
            waiting.submitting = self._background.start(self._submit(at, row, waiting))
        return waiting

    async def _wait(self, waiting: _Waiting) -> Outcome:
        limit_s = self._queue_timeout_s + self._rollout_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(waiting.outcome)
        except TimeoutError:
            text = f"not finished within {limit_s:g} s, the queue included"
            raise StatusError(504, str(FailureClass.DEADLINE_EXCEEDED), text, stage="queue") from None

    async def _submit(self, at: RolloutId, row: bytes, waiting: _Waiting) -> None:
        run, task_index, rollout_index = at
        task = Task(
            run=run,
            task_index=task_index,
            rollout_index=rollout_index,
            num_rollouts=1,
            agent=waiting.asked.agent,
            row=row,
            timeout_s=self._rollout_timeout_s,
            replaces=waiting.asked.replaces,
        )
        try:
            await self._open(run)
            await self._queue.submit(task)
        except (BusError, BadMessage) as error:
            self._waiting.pop(at, None)
            waiting.fail(StatusError(500, "not_queued", f"the row could not be queued: {error}", stage="queue"))

    async def _open(self, run: str) -> None:
        """Create a run before its first row: a bridge without requests creates none.

        The record of the run with keys is read for each row, which may have been made before the run was deleted.
        """
        now = time.monotonic()
        if run == self.run and now - self._opened_at < OPEN_EVERY_S:
            return
        await self._queue.open_run(run)
        if run == self.run:
            self._opened_at = now

    def _on_stored(self, at: RolloutId) -> None:
        if at in self._waiting:
            self._background.start(self._fetch(at))

    def _look_again(self, run: str) -> None:
        for at, waiting in list(self._waiting.items()):
            if at.run == run and self._js.missing:
                del self._waiting[at]
                waiting.fail(StatusError(500, "not_queued", self._js.missing, stage="queue"))
            elif at.run == run:
                self._background.start(self._fetch(at))

    async def _fetch(self, at: RolloutId) -> None:
        """Pass the outcome of a rollout to its waiting requests, if there is one."""
        async with self._fetching:
            waiting = self._waiting.get(at)
            if waiting is None:
                return
            try:
                found = await self._queue.outcomes.find_outcome(*at)
            except BusError as error:
                log.warning("retrying to read the outcome of %s: %s", at, error)
                return
            if found is not None and found[0] != waiting.asked.replaces and not waiting.outcome.done():
                self._waiting.pop(at, None)
                waiting.outcome.set_result(found[1])

    async def _find(self, at: RolloutId) -> tuple[int, Outcome] | None:
        """Return the stored outcome with its sequence, retrying while the server is away."""

        async def find() -> tuple[int, Outcome] | None:
            async with self._fetching:
                return await self._queue.outcomes.find_outcome(*at)

        try:
            return await self._bus.retry_read(find, patience_s=SUBMIT_PATIENCE_S)
        except BusError as error:
            raise StatusError(500, "not_queued", f"the outcomes cannot be read: {error}", stage="queue") from None

    async def _watch(self) -> None:
        """Fail the requests for agents that are gone."""
        while True:
            await asyncio.sleep(15.0)
            with suppress(BusError):
                await self._check_served()

    async def _check_served(self) -> None:
        unserved = await self._unserved.among({waiting.asked.agent for waiting in self._waiting.values()})
        for at, waiting in list(self._waiting.items()):
            if (agent := waiting.asked.agent) in unserved:
                text = f"no process serves the agent {agent!r}"
                waiting.fail(StatusError(500, str(FailureClass.NO_WORKER), text, stage="queue"))
                if at.run == self.keyed_run:
                    self._queued[at] = waiting.asked  # its task stays, for a request that repeats the key
                    del self._waiting[at]

    async def _cancel_one(self, at: RolloutId) -> None:
        await self._cancel(self.run, at.task_index)
        self._num_cancelling -= 1

    async def _cancel(self, run: str, task_index: int | None) -> None:
        """Cancel a rollout, or all of the run; agents skip queued tasks when they reach them."""
        try:
            await self._queue.mark_cancelled(run, task_index)
        except BusError as error:
            log.warning("%s could not be cancelled: %s", run if task_index is None else f"{run}/{task_index}", error)
