"""The serving side of calls: bounded, always answering, never blocked by one message.

A service that is full leaves its queue group until it has room, so that calls go to other replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus, BusError, Msg, Subscription, blobs
from gymq.bus.rpc import tracing
from gymq.bus.rpc.jobs import Job, Jobs, Reply, describe, fail_of
from gymq.bus.rpc.loop_fairness import Starter
from gymq.bus.rpc.process_reports import cost_of, limit_reached
from gymq.bus.rpc.quarantine import TRUSTED_LOSSES, SuspectCall, SuspectCalls
from gymq.failures import LoopBlocked, RolloutError
from gymq.fair_queue import FairQueue
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import (
    BadMessage,
    BlobRef,
    Call,
    Fail,
    FailureClass,
    Message,
)
from gymq.redaction import redact

log = logging.getLogger("gymq.serving")

ACCEPT_AFTER_S = 0.2  # calls answered sooner need no Accepted
MOST_WAITING = 1024  # calls that wait in a process, or as many as may run if that is more
MOST_WAITING_BYTES = 256 << 20  # of their bodies
CALLER_S = 30.0  # without a call, and a process counts as a caller no more

Handler = Callable[[str, Any], Awaitable[Message]]


class Service:
    """One subject served by one handler, and in a group a second one that is this process's own."""

    def __init__(
        self,
        jobs: Jobs,
        name: str,
        subject: str,
        *,
        group: str,
        decode: Decoder,
        handler: Handler,
        limit: int,
        most_waiting: int,
        failure_class: FailureClass,
    ) -> None:
        self.name = name
        self.subject = subject
        self.own_subject = subjects.of_worker(subject, jobs.worker) if group else subject
        self.entrance = subjects.urgent_entrance(subject)
        self.group = group
        self.limit = limit
        self._most_waiting = most_waiting
        self._waiting_bytes = 0
        self.num_requests = 0
        self.num_errors = 0
        self.processing_s = 0.0
        self.blocked = ""  # how a call blocked the event loop last
        self.jobs = jobs
        self._decode = decode
        self._handler = handler
        self._failure_class = failure_class
        self._subscriptions: list[Subscription] = []
        self._urgent: Subscription | None = None
        self._callers: dict[str, float] = {}  # when each called last, by its box
        self._queue: FairQueue[Job] = FairQueue()
        self._starter = Starter(self._start_one)
        self._joining = False
        self._leaving = False

    @property
    def load(self) -> int:
        """Calls running or waiting."""
        return self._queue.num_running + self._queue.num_waiting

    @property
    def _is_full(self) -> bool:
        """Whether so much waits that other replicas should take what comes."""
        most_waiting = max(self.limit, self._most_waiting or MOST_WAITING)
        return self.load >= self.limit + most_waiting or self._waiting_bytes >= MOST_WAITING_BYTES

    @property
    def _has_room(self) -> bool:
        most_waiting = self._most_waiting or MOST_WAITING
        return self._queue.num_waiting < most_waiting // 2 and self._waiting_bytes < MOST_WAITING_BYTES // 2

    @property
    def is_open(self) -> bool:
        """Whether it takes calls: it is neither full nor leaving."""
        return bool(self._subscriptions)

    @property
    def held_back(self) -> int:
        """Calls that wait because as many run as may."""
        return self._queue.num_waiting if self._queue.num_running >= self.limit else 0

    @property
    def num_callers(self) -> int:
        """Processes that called lately."""
        self._forget_callers()
        return len(self._callers)

    def _forget_callers(self) -> None:
        since = self.jobs.loop.time() - CALLER_S
        self._callers = {box: at for box, at in self._callers.items() if at >= since}

    async def join(self) -> None:
        """Take calls, unless it already does or is leaving permanently."""
        if self._subscriptions or self._joining or self._leaving:
            return
        self._joining = True
        try:
            if self.group and self._urgent is None:  # open also while it is full: the agents' slots bound what comes
                self._urgent = await self.jobs.bus.listen(self.entrance, self._on_message, group=self.group)
            for subject in dict.fromkeys((self.own_subject, self.subject)):
                subscription = await self.jobs.bus.listen(subject, self._on_message, group=self.group)
                self._subscriptions.append(subscription)
        finally:
            self._joining = False
        if self._leaving:
            await self.leave()

    async def leave(self) -> None:
        """Take no new calls; those that have arrived are still answered."""
        self._leaving = True
        await self._unsubscribe()
        if self._urgent is not None:
            urgent, self._urgent = self._urgent, None
            await self.jobs.bus.unsubscribe(urgent)

    async def _unsubscribe(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await self.jobs.bus.unsubscribe(subscription)

    def _on_message(self, message: Msg) -> None:
        reply = message.reply
        if reply and not reply.startswith(subjects.INBOX_PREFIX):
            return  # the server does not check where a requester wants its reply sent
        try:
            self.take(message.subject, message.data, reply, (message.headers or {}).get("traceparent", ""))
        except BadMessage as error:
            if reply:
                failure = fail_of(FailureClass.BAD_REQUEST, str(error))
                self.jobs.in_background(self.jobs.send(reply, failure, self._failure_class))

    def take(self, subject: str, body: bytes, reply: Reply = "", trace: str = "") -> Job:
        """Have a call wait for its turn.

        Args:
            trace: the caller's span, if it is traced.

        Raises:
            BadMessage: the body is not that of a call.
        """
        self.num_requests += 1
        try:
            request = self._decode(body)
        except BadMessage:
            self.num_errors += 1
            raise
        now = self.jobs.loop.time()
        deadline = now + getattr(request, "timeout_s", blobs.CALL_TTL_S)
        job = Job(subject, request, len(body), self.drop, reply=reply, trace=trace, deadline=deadline)
        if reply:
            box = job.inbox.split(".", 3)[2] if job.inbox else self.jobs.bus.box
            if box not in self._callers:
                self._forget_callers()
            self._callers[box] = now
        self.jobs.all.add(job)
        self._queue.add(job, request.rollout, job.precedence)
        self._waiting_bytes += job.num_bytes
        if reply and not job.inbox:
            self.jobs.accept(job)
            self._starter.start_now()
        else:
            after_s = 0.0 if self.jobs.has_been_blocked else ACCEPT_AFTER_S
            job.timer = self.jobs.loop.call_later(after_s, self.jobs.accept, job)
            self._starter.schedule()
        if self._is_full and self.group and self._subscriptions and not self._joining:
            self.jobs.in_background(self._unsubscribe())
        return job

    def _start_one(self) -> bool:
        if not self._queue.num_waiting or self._queue.num_running >= self.limit:
            return False
        job = self._queue.pop()
        self._waiting_bytes -= job.num_bytes
        job.task = self.jobs.loop.create_task(self._run(job), context=self.jobs.context.copy())
        started = self.jobs.loop.time()
        # Not inside the task: one that is cancelled before its first step runs nothing of its own.
        job.task.add_done_callback(lambda task: self._finished(job, task, started))
        return True

    async def _run(self, job: Job) -> None:
        reply = await self._reply_to(job)
        if not isinstance(reply, Fail):
            job.cost = cost_of(reply)
        if job.timer is not None:
            job.timer.cancel()
        if job.reply:
            await self.jobs.send(job.reply, reply, self._failure_class)

    def _finished(self, job: Job, task: asyncio.Task[None], started: float) -> None:
        # Only after the reply is on its way: a probe in between must still find the call here.
        self.jobs.forget(job)
        self._queue.end(job, job.cost)
        self.processing_s += self.jobs.loop.time() - started
        self._next()
        if task.cancelled():
            self.jobs.lose(job)
        elif task.exception() is not None:
            log.error("%s: a call was not answered", self.name, exc_info=task.exception())

    async def _reply_to(self, job: Job) -> Message:
        """Return the handler's answer, or the failure that it ended with."""
        try:
            request = job.request
            if isinstance(request, BlobRef):
                request = await self._fetch(job, request)
            current_call.set(CurrentCall(request.rollout, job.deadline, job.precedence))
            if job.deadline <= self.jobs.loop.time():
                raise RolloutError(FailureClass.DEADLINE_EXCEEDED, "the call waited until its deadline")
            if request.num_lost:
                await self.jobs.accept_at_once(job)
            if self.jobs.has_been_blocked:
                await self.jobs.take_turn()
            with tracing.served(self.name, request.rollout, job.trace):
                if request.num_lost <= TRUSTED_LOSSES:
                    return await self._handler(job.subject, request)
                with self.jobs.suspects.place(SuspectCall(self.name, request.rollout, request.num_lost)):
                    return await self._handler(job.subject, request)
        except RolloutError as error:
            failure = fail_of(error.failure_class, error.message, retryable=error.retryable, curable=error.curable)
        except LoopBlocked as error:
            self.blocked = redact(f"{self.name}: {error}")
            log.error("%s", self.blocked)
            self.jobs.pause()
            failure = fail_of(self._failure_class, self.blocked)
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt, BaseExceptionGroup) as error:
            # Also a handler's sys.exit(): it must not end the worker.
            failure = self._failure(job, error)
        self.num_errors += 1
        return failure

    def _failure(self, job: Job, error: BaseException) -> Fail:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            if job.expired:
                return fail_of(FailureClass.DEADLINE_EXCEEDED, f"{self.name} did not finish before the call's deadline")
            if self.jobs.is_stopping:
                return fail_of(FailureClass.WORKER_LOST, f"{self.name} was stopped", retryable=True)
            return fail_of(FailureClass.CANCELLED, "cancelled by the caller")
        log.error("%s failed", self.name, exc_info=error)
        return fail_of(self._failure_class, f"{self.name}: {describe(error)}", retryable=True)

    async def _fetch(self, job: Job, ref: BlobRef) -> Call:
        try:
            request: Call = await blobs.follow(self.jobs.bus, ref, self._decode, "call")
        except BadMessage as error:
            raise RolloutError(FailureClass.BAD_REQUEST, str(error)) from None
        except BusError as error:
            raise RolloutError(FailureClass.COMPONENT_FAILED, f"the request could not be fetched: {error}") from None
        job.deadline += request.timeout_s - blobs.CALL_TTL_S
        self.jobs.accept(job)
        return request

    def _next(self) -> None:
        if self._queue.num_waiting:
            self._starter.schedule()
        if not self._subscriptions and not self._leaving and self._has_room:
            self.jobs.in_background(self.join())

    def drop(self, job: Job) -> None:
        """Remove a job that has not started."""
        self._queue.end(job)
        self._waiting_bytes -= job.num_bytes
        self.jobs.forget(job)
        self._next()


class Server:
    """The services of one process."""

    def __init__(self, bus: Bus, worker: str, suspects: SuspectCalls | None = None) -> None:
        """Prepare the server of a process.

        Args:
            worker: the process's id, one token.
            suspects: the calls at work that may end it.
        """
        self.worker = worker
        self.bus = bus
        self.services: list[Service] = []
        self._by_subject: dict[str, Service] = {}
        self.jobs = Jobs(bus, worker, suspects)

    async def start(self) -> None:
        await self.jobs.listen()

    async def serve(
        self,
        name: str,
        subject: str,
        decode: Decoder,
        handler: Handler,
        *,
        group: str = "",
        limit: int,
        most_waiting: int = 0,
        failure_class: FailureClass = FailureClass.VERIFIER_FAILED,
    ) -> Service:
        """Answer every request on `subject` with `handler(subject, request)`, at most `limit` at a time.

        Those that wait are taken by the priority and the share of their runs.

        Args:
            group: queue group that shares the requests; callers may also ask this process by name, for the same slots.
            most_waiting: beyond so many waiting calls it leaves the group for a while; 0: `MOST_WAITING`.
            failure_class: of the reply when `handler` raises something else than a RolloutError.
        """
        service = Service(
            self.jobs,
            name,
            subject,
            group=group,
            decode=decode,
            handler=handler,
            limit=limit,
            most_waiting=most_waiting,
            failure_class=failure_class,
        )
        self.services.append(service)
        self._by_subject |= dict.fromkeys((service.subject, service.own_subject, service.entrance), service)
        await service.join()
        return service

    def serving(self, subject: str) -> Service | None:
        """Return the service of this process that a call is for; None: the call goes to its subject.

        A session is in one process only. Of a group's calls, this process takes those that it has a slot for.
        """
        in_session = subject.startswith(subjects.SESSIONS)
        service = self._by_subject.get(f"{subject.rpartition('.')[0]}.*" if in_session else subject)
        if service is None or not service.is_open:
            return None
        return service if in_session or service.load < service.limit else None

    def held_back(self) -> dict[str, int]:
        """Return how many calls wait, by the limit that holds them back."""
        counts: Counter[str] = Counter()
        for service in self.services:
            counts[limit_reached(service.name, service.limit, "calls")] += service.held_back
        return dict(+counts)

    async def leave(self, prefix: str = "") -> None:
        """Leave the queue groups of all subjects with a prefix."""
        for service in self.services:
            if service.group and service.subject.startswith(prefix):
                await service.leave()

    async def drain(self, deadline_s: float) -> None:
        """Leave all queue groups, answer what has arrived, for at most `deadline_s` seconds; stop the rest."""
        await self.leave()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + deadline_s
        while self.jobs.all and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self.jobs.is_stopping = True
        for service in self.services:
            await service.leave()  # sessions too
        jobs = list(self.jobs.all)
        for job in jobs:
            self.jobs.cancel(job)
            if job.task is None:
                self.jobs.lose(job)
        stopped = [job.task for job in jobs if job.task is not None]
        if stopped:
            await asyncio.wait(stopped, timeout=5.0)
