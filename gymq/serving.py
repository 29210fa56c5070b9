"""The serving side of calls: bounded, always answering, never blocked by one message.

A service that is full leaves its queue group until it has room, so that calls go to other replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from gymq import parts, subjects
from gymq.authoring import CurrentCall, current_call
from gymq.bus import Bus, BusError
from gymq.messages import (
    Accepted,
    BadMessage,
    Call,
    Cancel,
    Claim,
    Decoder,
    Fail,
    FailureClass,
    Message,
    Ping,
    Pong,
    decoder,
    encode,
)
from gymq.outcomes import RolloutError

log = logging.getLogger("gymq.serving")

ACCEPT_AFTER_S = 0.2  # calls answered sooner need no Accepted
MOST_WAITING = 1024  # calls that wait in a process, or as many as may run if that is more

_decode_ping = decoder(Ping)
_decode_cancel = decoder(Cancel)

Answer = Callable[[str, Any], Awaitable[Message]]


class _Job:
    __slots__ = ("body", "deadline", "expired", "reply", "request", "subject", "task", "timer")

    def __init__(self, subject: str, reply: str, request: Call | Claim) -> None:
        self.subject = subject
        self.reply = reply
        self.request = request
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.deadline = 0.0
        self.expired = False


class Service:
    """One subject served by one handler."""

    def __init__(
        self, server: Server, name: str, subject: str, group: str, decode: Decoder, answer: Answer, limit: int
    ) -> None:
        self.name = name
        self.subject = subject
        self.group = group
        self.limit = limit
        self.num_requests = 0
        self.num_errors = 0
        self.processing_s = 0.0
        self._server = server
        self._decode = decode
        self._answer = answer
        self._subscription: Subscription | None = None
        self._waiting: deque[_Job] = deque()
        self._running = 0
        self._leaving = False

    @property
    def load(self) -> int:
        """Calls running or waiting."""
        return self._running + len(self._waiting)

    async def join(self) -> None:
        if self._subscription is None and not self._leaving:
            self._subscription = await self._server.bus.subscribe(self.subject, self._on_message, group=self.group)

    async def leave(self) -> None:
        """Take no new calls; those that have arrived are still answered."""
        self._leaving = True
        await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.drain()  # type: ignore[no-untyped-call]

    async def _on_message(self, message: Msg) -> None:
        reply = message.reply
        if reply and not reply.startswith(subjects.INBOX_PREFIX):
            return  # the server does not check where a requester wants its reply sent
        self.num_requests += 1
        try:
            request = self._decode(message.data)
        except BadMessage as error:
            self.num_errors += 1
            if reply:
                await self._server.send(reply, Fail(failure_class=FailureClass.BAD_REQUEST, message=str(error)))
            return
        job = _Job(message.subject, reply, request)
        job.deadline = self._server.loop.time() + getattr(request, "timeout_s", 3600.0)
        self._server.jobs[reply or id(job)] = job
        job.timer = self._server.loop.call_later(ACCEPT_AFTER_S, self._server.accept, job)
        if self._running < self.limit:
            self._start(job)
        else:
            self._waiting.append(job)
            # Beyond so many waiting calls other replicas should take them.
            if len(self._waiting) >= max(self.limit, MOST_WAITING) and self.group and self._subscription is not None:
                subscription, self._subscription = self._subscription, None
                self._server.in_background(subscription.drain())  # type: ignore[no-untyped-call]

    def _start(self, job: _Job) -> None:
        self._running += 1
        job.task = self._server.loop.create_task(self._run(job))

    async def _run(self, job: _Job) -> None:
        loop = self._server.loop
        started = loop.time()
        reply: Message
        try:
            request = job.request
            if isinstance(request, Claim):
                request = self._decode(await parts.get(self._server.bus, request))
            current_call.set(CurrentCall(request.rollout, job.deadline))
            if job.deadline <= started:
                raise RolloutError(FailureClass.DEADLINE_EXCEEDED, "the call waited until its deadline")
            reply = await self._answer(job.subject, request)
        except RolloutError as error:
            self.num_errors += 1
            reply = Fail(failure_class=error.failure_class, message=error.message, retryable=error.retryable)
        except asyncio.CancelledError:
            self.num_errors += 1
            failure = FailureClass.DEADLINE_EXCEEDED if job.expired else FailureClass.CANCELLED
            reply = Fail(failure_class=failure, message="stopped")
        except (BadMessage, BusError) as error:
            self.num_errors += 1
            reply = Fail(failure_class=FailureClass.BAD_REQUEST, message=str(error))
        except Exception as error:
            self.num_errors += 1
            log.exception("%s failed", self.name)
            text = f"{self.name}: {type(error).__name__}: {error}"
            reply = Fail(failure_class=FailureClass.VERIFIER_FAILED, message=text[:2000], retryable=True)
        if job.timer is not None:
            job.timer.cancel()
        if job.reply:
            await self._server.send(job.reply, reply)
        # Only after the reply is on its way: a probe in between must still find the call here.
        self._server.jobs.pop(job.reply or id(job), None)
        self.processing_s += loop.time() - started
        self._running -= 1
        self._next()

    def _next(self) -> None:
        while self._waiting and self._running < self.limit:
            self._start(self._waiting.popleft())
        if self._subscription is None and not self._leaving and len(self._waiting) < MOST_WAITING // 2:
            self._server.in_background(self.join())

    def drop(self, job: _Job) -> bool:
        """Remove a job that has not started."""
        try:
            self._waiting.remove(job)
        except ValueError:
            return False
        return True


class Server:
    """The services of one process."""

    def __init__(self, bus: Bus, worker: str) -> None:
        """
        Args:
            worker: the process's id, one token.
        """
        self.bus = bus
        self.worker = worker
        self.services: list[Service] = []
        self.jobs: dict[str | int, _Job] = {}
        self.loop = asyncio.get_running_loop()
        self._background: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        await self.bus.subscribe(subjects.ping(self.worker), self._on_ping)
        await self.bus.subscribe(subjects.cancel(self.worker), self._on_cancel)

    async def serve(
        self, name: str, subject: str, decode: Decoder, answer: Answer, *, group: str = "", limit: int
    ) -> Service:
        """Answer every request on `subject` with `answer(subject, request)`, at most `limit` at a time."""
        service = Service(self, name, subject, group, decode, answer, limit)
        self.services.append(service)
        await service.join()
        return service

    async def leave(self, prefix: str = "") -> None:
        """Leave the queue groups of all subjects with a prefix."""
        for service in self.services:
            if service.group and service.subject.startswith(prefix):
                await service.leave()

    async def drain(self, deadline_s: float) -> None:
        """Leave all queue groups, answer what has arrived, for at most `deadline_s` seconds."""
        await self.leave()
        give_up = self.loop.time() + deadline_s
        while self.jobs and self.loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        for job in list(self.jobs.values()):
            if job.task is not None:
                job.task.cancel()

    async def send(self, reply: str, message: Message) -> None:
        """Answer; a reply that is too large travels in parts, one that cannot be sent becomes a failure."""
        try:
            body = encode(message)
            if len(body) > self.bus.max_body_bytes:
                body = await parts.put_for_call(self.bus, body)
            await self.bus.publish(reply, body)
        except (BadMessage, BusError) as error:
            log.warning("reply not sent: %s", error)
            failure = Fail(failure_class=FailureClass.BAD_REQUEST, message=f"the reply could not be sent: {error}")
            try:
                await self.bus.publish(reply, encode(failure))
            except BusError:
                return

    def accept(self, job: _Job) -> None:
        """Tell the caller that this process has the call, and watch its deadline from now on."""
        job.timer = self.loop.call_at(job.deadline, self._expire, job)
        if job.reply:
            self.in_background(self.send(job.reply, Accepted(worker=self.worker)))

    def _expire(self, job: _Job) -> None:
        job.expired = True
        if job.task is not None:
            job.task.cancel()

    def in_background(self, work: Any) -> None:
        task = self.loop.create_task(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _on_ping(self, message: Msg) -> None:
        try:
            ping = _decode_ping(message.data)
        except BadMessage:
            return
        gone = [number for number in ping.calls if f"{ping.inbox}.{number}" not in self.jobs]
        await self.send(message.reply, Pong(gone=gone))

    async def _on_cancel(self, message: Msg) -> None:
        try:
            job = self.jobs.get(_decode_cancel(message.data).reply)
        except BadMessage:
            return
        if job is None:
            return
        if job.task is not None:
            job.task.cancel()
        elif any(service.drop(job) for service in self.services):
            self.jobs.pop(job.reply, None)
            if job.timer is not None:
                job.timer.cancel()


async def _quietly(work: Any) -> None:
    try:
        await work
    except Exception as error:
        log.warning("%s: %s", type(error).__name__, error)
