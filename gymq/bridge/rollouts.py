"""Requests as tasks: put into the queue, waited for by their doorbell, cancelled when nobody waits any more."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

from nats.aio.msg import Msg

from gymq import streams, subjects
from gymq.bridge import keys
from gymq.bridge.failures import BridgeError
from gymq.bus import Bus, BusError
from gymq.discovery import is_running
from gymq.jetstream import JetStream
from gymq.jsonl import parse_object
from gymq.messages import BadMessage, Cancellation, FailureClass, Outcome, Rollout, Run, Task, encode
from gymq.outcome_store import OutcomeStore
from gymq.tasks import read_task, submit

log = logging.getLogger("gymq.bridge")

SUBMIT_PATIENCE_S = 120.0  # while the server is away or full
FIND_AGAIN_S = 0.5
MOST_SUBMITTED_AT_ONCE = 64
MOST_FETCHED_AT_ONCE = 16  # outcomes, each of which may be megabytes
LOOK_AGAIN_EVERY_S = 15.0  # a doorbell may be missed
NOBODY_SERVES_S = 60.0  # without an answer of any process of an agent, its rollouts are given up

Key = tuple[str, int, int]  # run, task index, rollout index


class _Asked(NamedTuple):
    """What a task was made for."""

    agent: str
    digest: str  # of the row; empty where there is no key
    replaces: int | None = None  # stream sequence of the failure that does not count any more

    def check(self, other: _Asked) -> None:
        """Whether a key that both have means the same rollout.

        Raises:
            BridgeError: 422; it does not.
        """
        if (self.agent, self.digest) != (other.agent, other.digest):
            text = f"the {keys.HEADER} of this request belongs to another row, or to the same one at another agent"
            raise BridgeError(422, "key_reused", text)


class _Waiting:
    """A rollout that is in the queue or in work."""

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # Whoever waited may be gone when it fails.
        self.outcome.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def fail(self, error: BridgeError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class Pending:
    """A rollout that was asked for."""

    def __init__(self, rollouts: Rollouts, at: Key, waiting: _Waiting) -> None:
        self._rollouts = rollouts
        self._at = at
        self._waiting = waiting

    async def outcome(self) -> Outcome:
        """The outcome. When the one who waits for it is cancelled so is the rollout, unless it has a key.

        Raises:
            BridgeError: 504 it took too long; 500 no agent, or no queue; 503 the bridge ends.
        """
        return await self._rollouts.wait(self._at, self._waiting)


class Rollouts:
    """Rolls out rows for those who wait. Everything is stored as for a collection, under two runs.

    Rows without a key belong to the run `<name>-<start>`, numbered as they come; what is left of it when the bridge
    ends is cancelled. Rows with a key belong to `<name>-keyed`, at indices made of the key.
    """

    def __init__(self, bus: Bus, name: str, *, rollout_timeout_s: float, queue_timeout_s: float) -> None:
        self.run = f"{name}-{secrets.token_hex(4)}"
        self.keyed_run = f"{name}-keyed"
        self._bus = bus
        self._js = JetStream(bus)
        self._outcomes = OutcomeStore(bus)
        self._name = name
        self._rollout_timeout_s = rollout_timeout_s
        self._queue_timeout_s = queue_timeout_s
        self._next_index = 0
        self._waiting: dict[Key, _Waiting] = {}
        # Tasks with keys that nobody waits for, such as those of an earlier bridge.
        self._queued: dict[Key, _Asked] = {}
        self._submitting = asyncio.Semaphore(MOST_SUBMITTED_AT_ONCE)
        self._fetching = asyncio.Semaphore(MOST_FETCHED_AT_ONCE)
        self._background: set[asyncio.Task[Any]] = set()
        self._silent_since: dict[str, float] = {}
        self._stopped = False

    @property
    def num_waiting(self) -> int:
        """Rollouts in the queue or in work."""
        return len(self._waiting)

    async def start(self) -> None:
        """Take over from an earlier bridge of this name.

        Raises:
            BusError
        """
        for run in (self.run, self.keyed_run):
            await self._bus.subscribe(subjects.done_of_run(run), self._on_done)
        self._bus.on_reconnect(lambda: self._in_background(self._look_for_all()))
        await self._cancel_orphans()
        for run in (self.run, self.keyed_run):
            record = encode(Run(run=run, created_at=time.time()))
            await self._js.store_surely(subjects.run_record(run), record, {}, patience_s=SUBMIT_PATIENCE_S)
        async for task in self._tasks_of(self.keyed_run):
            asked = _Asked(task.agent, keys.digest_of(parse_object(task.row)), task.replaces)
            self._queued[task.run, task.task_index, task.rollout_index] = asked
        self._in_background(self._watch())

    async def stop(self) -> None:
        """Tell all who wait that they wait in vain. Rollouts with a key go on, the others are cancelled."""
        self._stopped = True
        for task in list(self._background):
            task.cancel()
        unfinished = any(run == self.run for run, _, _ in self._waiting)
        for waiting in self._waiting.values():
            waiting.fail(BridgeError(503, "shutting_down", "the bridge is shutting down"))
        if unfinished:
            await self._cancel(self.run, None)

    async def roll_out(self, row: bytes, agent: str, key: str | None = None) -> Outcome:
        """`begin` and `Pending.outcome` in one."""
        return await (await self.begin(row, agent, key)).outcome()

    async def begin(self, row: bytes, agent: str, key: str | None = None) -> Pending:
        """Put a row into the queue. Nothing here keeps it longer than until the queue has it.

        Args:
            row: JSON text of an object.
            key: rows with the same key are rolled out once.

        Raises:
            BridgeError: 422 the key was used for another row or agent; 500 the outcomes cannot be read.
        """
        if key is None:
            at = (self.run, self._next_index, 0)
            self._next_index += 1
            return Pending(self, at, self._begin(at, row, _Asked(agent, "")))
        at = (self.keyed_run, *keys.indices_of(key))
        asked = _Asked(agent, keys.digest_of(parse_object(row)))
        if at not in self._waiting:
            found = await self._find(at)
            if found is not None:
                sequence, outcome = found
                asked.check(_Asked(outcome.agent, keys.digest_of(parse_object(outcome.row))))
                if isinstance(outcome, Rollout) or not outcome.retryable:
                    ended = _Waiting(asked)
                    ended.outcome.set_result(outcome)
                    return Pending(self, at, ended)
                asked = asked._replace(replaces=sequence)
        # Another request with the key may have begun while this one looked.
        if at in self._waiting:
            asked.check(self._waiting[at].asked)
        elif at in self._queued:
            asked.check(self._queued[at])
        waiting = self._waiting.get(at) or self._begin(at, row, asked)
        return Pending(self, at, waiting)

    async def wait(self, at: Key, waiting: _Waiting) -> Outcome:
        """As `Pending.outcome`."""
        try:
            return await self._wait(waiting)
        except (asyncio.CancelledError, BridgeError):
            if at[0] == self.run and self._waiting.pop(at, None) is not None and not self._stopped:
                self._in_background(self._cancel(self.run, at[1]))
            raise

    def _begin(self, at: Key, row: bytes, asked: _Asked) -> _Waiting:
        waiting = self._waiting[at] = _Waiting(asked)
        if self._queued.pop(at, None) == asked:
            self._in_background(self._fetch(at))  # it may have ended since the queue was read
        else:  # nothing is queued, or it has failed by now
            self._in_background(self._submit(at, row, waiting))
        return waiting

    async def _wait(self, waiting: _Waiting) -> Outcome:
        limit_s = self._queue_timeout_s + self._rollout_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(waiting.outcome)
        except TimeoutError:
            text = f"not finished within {limit_s:g} s, the queue included"
            raise BridgeError(504, str(FailureClass.DEADLINE_EXCEEDED), text, stage="queue") from None

    async def _submit(self, at: Key, row: bytes, waiting: _Waiting) -> None:
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
            async with self._submitting:
                if at in self._waiting:
                    once = f"bridge-{waiting.asked.replaces or 0}"
                    await submit(self._bus, task, once=once, urgent=False, patience_s=SUBMIT_PATIENCE_S)
        except (BusError, BadMessage) as error:
            self._waiting.pop(at, None)
            waiting.fail(BridgeError(500, "not_queued", f"the row could not be queued: {error}", stage="queue"))

    async def _on_done(self, message: Msg) -> None:
        _, _, run, task_index, rollout_index = message.subject.split(".")
        at = (run, int(task_index), int(rollout_index))
        if at in self._waiting:
            self._in_background(self._fetch(at))

    async def _fetch(self, at: Key) -> None:
        """Give those who wait for a rollout its outcome, if there is one."""
        async with self._fetching:
            waiting = self._waiting.get(at)
            if waiting is None:
                return
            try:
                found = await self._outcomes.find_outcome(*at)
            except BusError as error:
                log.warning("the outcome of %s/%d/%d is looked for again: %s", *at, error)
                return
            if found is not None and found[0] != waiting.asked.replaces and not waiting.outcome.done():
                self._waiting.pop(at, None)
                waiting.outcome.set_result(found[1])

    async def _find(self, at: Key) -> tuple[int, Outcome] | None:
        """The stored outcome, with its sequence; asked for again while the server is away."""
        give_up = time.monotonic() + SUBMIT_PATIENCE_S
        while True:
            try:
                async with self._fetching:
                    return await self._outcomes.find_outcome(*at)
            except BusError as error:
                if time.monotonic() > give_up:
                    text = f"the outcomes cannot be read: {error}"
                    raise BridgeError(500, "not_queued", text, stage="queue") from None
            await asyncio.sleep(FIND_AGAIN_S)

    async def _watch(self) -> None:
        """Look for outcomes whose doorbell was missed, and for agents that are gone."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_EVERY_S)
            await self._look_for_all()
            for agent in {waiting.asked.agent for waiting in self._waiting.values()}:
                await self._check_served(agent)

    async def _look_for_all(self) -> None:
        await asyncio.gather(*(self._fetch(at) for at in list(self._waiting)))

    async def _check_served(self, agent: str) -> None:
        now = time.monotonic()
        try:
            is_silent = self._bus.is_settled and not await is_running(self._bus, agent, "agents")
        except BusError:
            return
        if not is_silent:
            self._silent_since.pop(agent, None)
            return
        if now - self._silent_since.setdefault(agent, now) < NOBODY_SERVES_S:
            return
        text = f"no process serves the agent {agent!r}"
        for at, waiting in list(self._waiting.items()):
            if waiting.asked.agent == agent:
                waiting.fail(BridgeError(500, str(FailureClass.NO_WORKER), text, stage="queue"))
                if at[0] == self.keyed_run:
                    self._queued[at] = waiting.asked  # its task stays, for whoever asks again
                    del self._waiting[at]

    async def _cancel(self, run: str, task_index: int | None) -> None:
        """Have agents stop a rollout, or all of the run; what is queued ends as they come to it."""
        mark = encode(Cancellation(run=run, task_index=task_index, at=time.time()))
        try:
            await self._js.store_surely(subjects.cancelled(run, task_index), mark, {}, patience_s=30.0)
        except BusError as error:
            log.warning("%s could not be cancelled: %s", run if task_index is None else f"{run}/{task_index}", error)

    async def _cancel_orphans(self) -> None:
        """Cancel what a bridge of this name that was killed has left; its callers are gone."""
        earlier = re.compile(rf"{re.escape(self._name)}-[0-9a-f]{{8}}")
        async for stored in self._js.read(streams.RUNS, subjects.ALL_RUNS):
            run = stored.subject.rpartition(".")[2]
            if earlier.fullmatch(run) and run != self.run and await anext(self._tasks_of(run), None) is not None:
                log.warning("cancelling what is left of %s", run)
                await self._cancel(run, None)

    async def _tasks_of(self, run: str) -> AsyncIterator[Task]:
        async for stored in self._js.read(streams.TASKS, subjects.tasks_of_run(run)):
            try:
                yield await read_task(self._bus, stored.data)
            except BadMessage:
                continue  # an agent will bury it

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
