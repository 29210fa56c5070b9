"""One try of a call: sent, accepted by a worker or answered, and watched while a worker has it.

A worker that needs longer than a moment first answers `Accepted`. From then on the caller asks it every second whether
it still has the call. A dead worker is known in about a second instead of at the call's timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

from gymq.bus import Bus, BusError, Denied, Msg, NoAnswer, NoResponders, blobs
from gymq.bus.connection import is_no_responders
from gymq.bus.rpc import tracing
from gymq.bus.rpc.backlog import Backlog, NoWorker
from gymq.bus.rpc.serving import Server, Service
from gymq.failures import CancelReason, RolloutError
from gymq.processes.background import RunningTasks, was_suspended
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.messages import (
    Accepted,
    BadMessage,
    BlobRef,
    Call,
    Cancel,
    Close,
    Closed,
    Fail,
    FailureClass,
    Generate,
    Generated,
    GenerateNext,
    Message,
    NeedsPrefix,
    Ping,
    Pong,
    PromptRead,
    ReadPrompt,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)

ACCEPT_TIMEOUT_S = 8.0  # a living worker answers or accepts within this, also on a machine that is far too busy
PROBE_EVERY_S = 1.0
PROBE_TIMEOUT_S = 8.0  # a loop that is blocked is free again before (`gymq.cluster.loop_watch`)

ANSWERS: dict[type[Call], tuple[type[Message], ...]] = {
    Seed: (Seeded, Fail),
    ToolCall: (ToolResult, Fail),
    Verify: (Verified, Fail),
    Close: (Closed, Fail),
    Generate: (Generated, Fail),
    GenerateNext: (Generated, NeedsPrefix, Fail),
    ReadPrompt: (PromptRead, Fail),
}

decode_reply = Decoder(
    Accepted, Fail, BlobRef, Seeded, ToolResult, Verified, Closed, Generated, NeedsPrefix, PromptRead
)
_decode_pong = Decoder(Pong)


def in_session(subject: str) -> bool:
    """Return whether calls on a subject are those of a session, which only one worker can answer."""
    return subject.startswith(subjects.SESSIONS)


def _lost(text: str) -> RolloutError:
    """Return the error of a call whose worker is lost; whether the call ran is unknown."""
    return RolloutError(FailureClass.WORKER_LOST, text)


class _Worker(NamedTuple):
    role: str
    id: str


class _Pending:
    __slots__ = ("backlog", "deadline", "future", "id", "num_large", "reply", "sent_in", "subject", "timer", "worker")

    def __init__(self, subject: str, deadline: float, future: asyncio.Future[Message], backlog: Backlog) -> None:
        self.subject = subject
        self.backlog = backlog
        self.sent_in = backlog.round
        self.deadline = deadline  # on the event loop's clock
        self.future = future
        self.num_large = 0  # bytes of the request, if it is large and not known to have arrived
        self.reply = ""
        self.id = ""  # known once it is accepted
        self.timer: asyncio.TimerHandle | None = None
        self.worker: _Worker | None = None

    @property
    def in_session(self) -> bool:
        return in_session(self.subject)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Tries:
    """The tries of the calls of a process."""

    def __init__(self, bus: Bus, server: Server | None = None) -> None:
        self._bus = bus
        self._server = server
        self._of_worker: dict[_Worker, dict[str, _Pending]] = {}  # by call id
        self._probes: dict[_Worker, asyncio.Task[None]] = {}
        self._background = RunningTasks()
        self._handed_over: set[str] = set()  # reply subjects of calls that are not to be stopped; the process ends soon
        bus.on_late_reply(self._on_late_reply)

    async def send(self, subject: str, message: Call | Cancel) -> None:
        """Send a message that has no answer; it is lost silently if no worker receives it."""
        service = self._here(subject)
        if service is not None:
            service.take(subject, encode(message))
            return
        with contextlib.suppress(BusError):
            await self._bus.publish(subject, encode(message))

    async def once(
        self, subject: str, request: Call, deadline: float, backlog: Backlog, *, elsewhere: bool = False
    ) -> Message:
        """Send a request once and return its reply.

        Args:
            elsewhere: whether another process shall have a call that any of a group may take.

        Raises:
            NoWorker: no worker took it.
            RolloutError: WORKER_LOST; the worker that may have it is lost. Or the request failed in another way.
        """
        service = None if elsewhere and not in_session(subject) else self._here(subject)
        try:
            if service is not None:
                backlog.taken(backlog.round)
                reply = await self._ask_here(service, subject, request)
            else:
                reply = await self._ask(subject, request, deadline, backlog)
            if type(reply) not in ANSWERS[type(request)]:
                raise BadMessage(f"{type(reply).__name__} does not answer {type(request).__name__}")
        except BadMessage as error:
            of_model = isinstance(request, Generate | GenerateNext | ReadPrompt)
            failure_class = FailureClass.MODEL_FAILED if of_model else FailureClass.VERIFIER_FAILED
            raise RolloutError(failure_class, f"unreadable reply on {subject}: {error}") from None
        except Denied as error:
            raise RolloutError(FailureClass.NO_WORKER, str(error), retryable=False, curable=True) from None
        except BusError as error:
            raise _lost(str(error)) from None
        if isinstance(reply, Fail):
            if reply.failure_class is FailureClass.WORKER_LOST:
                raise _lost(reply.message)
            raise RolloutError(reply.failure_class, reply.message, retryable=reply.retryable, curable=reply.curable)
        return reply

    def _here(self, subject: str) -> Service | None:
        return None if self._server is None else self._server.serving(subject)

    async def _ask_here(self, service: Service, subject: str, request: Call) -> Message:
        """Return the reply of a service of this process.

        Both sides get what the codec makes of a message, as they do from another process: values of their own.
        """
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_answer(body: bytes) -> None:
            reply = decode_reply(body)
            if answer.done():
                self._close_late_session(reply)
            else:
                answer.set_result(reply)

        trace = (tracing.headers() or {}).get("traceparent", "")
        try:
            job = service.take(subject, encode(request), on_answer, trace)
        except BadMessage as error:
            text = f"the request to {subject} has no wire form: {error}"
            raise RolloutError(FailureClass.BAD_REQUEST, text) from None
        try:
            return await answer
        except asyncio.CancelledError as error:
            if not (in_session(subject) and CancelReason.HANDED_OVER in error.args):
                service.jobs.cancel(job)
            if not answer.cancel() and not answer.cancelled():
                self._close_late_session(answer.result())
            raise

    async def _ask(self, subject: str, request: Call, deadline: float, backlog: Backlog) -> Message:
        """Return the reply of the worker that gets a message."""
        loop = asyncio.get_running_loop()
        pending = _Pending(subject, deadline, loop.create_future(), backlog)
        try:
            body = await self._body(subject, request, pending)
            answered_by = subjects.answered_by(subject)
            pending.reply = self._bus.expect(
                lambda message: self._on_reply(pending, message),
                answered_by,
                subject=subject,
                on_failed=lambda error: self._on_failed(pending, error),
            )
            self._await_acceptance(pending)
            await self._bus.publish(subject, body, reply=pending.reply, headers=tracing.headers())
            reply = await pending.future
            if isinstance(reply, BlobRef):
                reply = await blobs.follow(self._bus, reply, decode_reply, "call")
            return reply
        except asyncio.CancelledError as error:
            if pending.in_session and CancelReason.HANDED_OVER in error.args:
                # The rollout continues in another process, which makes the call again and gets the same answer.
                self._handed_over.add(pending.reply)
            elif pending.worker is not None:
                self._cancel(pending.worker, pending.reply)
            if pending.future.done() and not pending.future.cancelled() and pending.future.exception() is None:
                self._close_late_session(pending.future.result())
            raise
        finally:
            self._forget(pending)

    async def _body(self, subject: str, request: Call, pending: _Pending) -> bytes:
        """Return the body of a request; a large one waits for its room."""
        try:
            body, pending.num_large = await self._bus.large_bodies.encode_when_room(
                lambda: encode(request), pending.deadline
            )
            if len(body) <= self._bus.max_body_bytes:
                return body
            left_s = pending.deadline - asyncio.get_running_loop().time()
            role = subjects.answered_by(subject)
            return await blobs.store_call(self._bus, compressed(body), role, request=request, patience_s=left_s)
        except TimeoutError:
            text = f"no room for a large request to {subject} before its deadline"
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, text) from None
        except BadMessage as error:
            text = f"the request to {subject} has no wire form: {error}"
            raise RolloutError(FailureClass.BAD_REQUEST, text) from None
        except Denied:
            raise
        except BusError as error:
            raise _lost(f"a large request could not be sent: {error}") from None

    def _on_reply(self, pending: _Pending, message: Msg) -> None:
        self._arrived(pending)
        if pending.future.done():  # cancelled in this turn of the event loop, or at its deadline
            self._on_late_reply(message)
            return
        if is_no_responders(message):
            pending.future.set_exception(NoWorker(pending.subject))
            return
        if pending.worker is None:
            pending.backlog.taken(pending.sent_in)
        try:
            reply = decode_reply(message.data)
        except BadMessage as error:
            pending.future.set_exception(error)
            return
        if isinstance(reply, Accepted):
            self._accepted(pending, _Worker(reply.role, reply.worker))
        else:
            pending.future.set_result(reply)

    def _accepted(self, pending: _Pending, worker: _Worker) -> None:
        if pending.worker is not None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
        pending.timer = asyncio.get_running_loop().call_at(pending.deadline, self._on_timeout, pending)
        pending.worker = worker
        pending.id = subjects.call_id(pending.reply)
        self._of_worker.setdefault(worker, {})[pending.id] = pending
        if worker not in self._probes:
            self._probes[worker] = asyncio.create_task(self._probe(worker))

    def _await_acceptance(self, pending: _Pending) -> None:
        loop = asyncio.get_running_loop()
        due = min(pending.deadline, loop.time() + ACCEPT_TIMEOUT_S)
        pending.timer = loop.call_at(due, self._not_accepted, pending, due)

    def _not_accepted(self, pending: _Pending, due: float) -> None:
        if asyncio.get_running_loop().time() >= pending.deadline:
            self._on_timeout(pending)
        elif was_suspended(due):
            self._await_acceptance(pending)
        else:
            pending.fail(_lost(f"no worker accepted the call on {pending.subject}"))

    def _on_failed(self, pending: _Pending, error: BusError) -> None:
        if pending.worker is None:
            pending.fail(error)

    def _on_timeout(self, pending: _Pending) -> None:
        text = f"no reply on {pending.subject} before its deadline"
        pending.fail(RolloutError(FailureClass.DEADLINE_EXCEEDED, text))
        if pending.worker is not None:
            self._cancel(pending.worker, pending.reply)

    def _arrived(self, pending: _Pending) -> None:
        """Make room for other large requests: somebody has this one."""
        if pending.num_large:
            self._bus.large_bodies.release(pending.num_large)
            pending.num_large = 0

    def _forget(self, pending: _Pending) -> None:
        self._bus.forget(pending.reply)
        self._arrived(pending)
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.worker is not None:
            calls = self._of_worker.get(pending.worker, {})
            calls.pop(pending.id, None)
            if not calls:
                self._of_worker.pop(pending.worker, None)
                probe = self._probes.pop(pending.worker, None)
                if probe is not None:
                    probe.cancel()

    async def _probe(self, worker: _Worker) -> None:
        """Ask a worker about its calls for as long as it has any."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            calls = dict(self._of_worker.get(worker, {}))
            reconnects = self._bus.reconnects
            due = asyncio.get_running_loop().time() + PROBE_TIMEOUT_S
            if not self._bus.is_connected:
                continue
            try:
                ping = encode(Ping(calls=list(calls)))
                answer = await self._bus.request(subjects.PING.of(*worker), ping, timeout_s=PROBE_TIMEOUT_S)
                gone = _decode_pong(answer.data).gone
                reason = "finished, but its answer was lost"
            except NoResponders:
                gone, reason = list(calls), "is gone"
            except (NoAnswer, BadMessage):
                gone, reason = list(calls), "does not answer"
            except BusError:
                continue
            if was_suspended(due) or self._bus.reconnects != reconnects or not self._bus.is_stable:
                continue  # the silence was ours, or the worker is not back yet
            for call in gone:
                pending = calls.get(call)
                if pending is not None and not pending.future.done():
                    pending.future.set_exception(_lost(f"worker {worker.id} {reason} ({pending.subject})"))
                    if not pending.in_session:
                        self._cancel(worker, pending.reply)  # it may only be frozen; the call is made elsewhere

    def _on_late_reply(self, message: Msg) -> None:
        """Cancel a call that was accepted too late to be awaited, or close the session that it opened."""
        try:
            reply = decode_reply(message.data)
        except BadMessage:
            return
        if isinstance(reply, Accepted):
            if message.subject not in self._handed_over:
                self._cancel(_Worker(reply.role, reply.worker), message.subject)
        else:
            self._close_late_session(reply)

    def _close_late_session(self, reply: Message) -> None:
        """Close the session in a reply that arrived too late: no other process knows its address."""
        if isinstance(reply, Seeded) and reply.session is not None:
            self._background.start(self.send(reply.session, Close(rollout="-", timeout_s=60.0)))

    def _cancel(self, worker: _Worker, reply: str) -> None:
        self._background.start(self.send(subjects.CANCEL.of(*worker), Cancel(call=subjects.call_id(reply))))
