"""Calls that may take minutes: a dead worker is noticed, and an unneeded call is cancelled.

A worker that needs longer than a moment first answers `Accepted`. From then on the caller asks it every second whether
it still has the call. A dead worker is known in about a second instead of at the call's timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gymq.authoring import current_call
from gymq.bus import Bus, BusError, Denied, Msg, NoAnswer, NoResponders, blobs
from gymq.bus.connection import SUSPENDED_S, is_no_responders
from gymq.bus.discovery import first_to_answer
from gymq.bus.rpc import tracing
from gymq.bus.rpc.backlog import Backlog, NoWorker
from gymq.bus.rpc.process_reports import OpenCall, OpenCalls
from gymq.failures import INTERRUPTED, RETRIES, CancelReason, RolloutError, SessionGone
from gymq.processes.background import RunningTasks
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
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
    Priority,
    PromptRead,
    ReadPrompt,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
    call_id,
)

ACCEPT_TIMEOUT_S = 8.0  # a living worker answers or accepts within this, also on a machine that is far too busy
PROBE_EVERY_S = 1.0
PROBE_TIMEOUT_S = 8.0  # a loop that is blocked is free again before (`gymq.cluster.loop_watch`)
SEARCH_S = 2.0  # for a worker that answers

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


class CallLost(RolloutError):
    """The worker of the call is lost; whether the call ran is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.WORKER_LOST, message)


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
        return self.subject.startswith(subjects.SESSIONS)


class _Failures:
    """The failed tries of one call; each class of failure has a count of its own, and so have outages."""

    def __init__(self, deadline: float, num_lost: int) -> None:
        self._deadline = deadline
        self._counts = {FailureClass.WORKER_LOST: num_lost}
        self._interruptions = 0

    def pause_s(self, problem: RolloutError, interrupted: bool) -> float | None:
        """Return the seconds until the call may be retried; None: it may not."""
        left_s = self._deadline - asyncio.get_running_loop().time()
        if interrupted:
            self._interruptions += 1
            return INTERRUPTED.pause_s(self._interruptions, left_s=left_s)
        retry = RETRIES[problem.failure_class].call
        if retry is None:
            return None
        failed = self._counts[problem.failure_class] = self._counts.get(problem.failure_class, 0) + 1
        return retry.pause_s(failed, left_s=left_s)

    @property
    def num_lost(self) -> int:
        """Workers that were lost while they had the call."""
        return self._counts.get(FailureClass.WORKER_LOST, 0)


class Calls:
    """The calling side; one for a process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._of_worker: dict[_Worker, dict[str, _Pending]] = {}  # by call id
        self._probes: dict[_Worker, asyncio.Task[None]] = {}
        self._background = RunningTasks()
        self._handed_over: set[str] = set()  # reply subjects of calls that are not to be stopped; the process ends soon
        self.open = OpenCalls()
        self._backlogs: dict[str, Backlog] = {}  # by the subject on which workers take the calls
        self._of_sessions = Backlog("")  # each has one worker, which takes all of its calls
        bus.on_late_reply(self._on_late_reply)

    async def call(self, subject: str, request: Call, *, one: Callable[[], str] = lambda: "") -> Message:
        """Send a request and wait for its reply; retry it where that is safe, until the request times out.

        Args:
            one: returns, for each try, the subject of one worker of the group that serves `subject`; empty: any of them
                may have the try.

        Raises:
            RolloutError: there is no reply; the error has the class of what went wrong.
        """
        own = current_call.get().precedence
        if own.priority is not Priority.NORMAL or own.share != 1.0:
            request = msgspec.structs.replace(request, priority=own.priority, share=own.share)
        in_session = subject.startswith(subjects.SESSIONS)
        is_urgent = request.priority is Priority.URGENT and not in_session
        entrance = subjects.urgent_entrance(subject) if is_urgent else subject
        backlog = self._of_sessions if in_session else self._backlog_of(subject, entrance)
        open_call = self.open.add(request)
        try:
            with tracing.call(_name(request), subject):
                return await self._until_answered(subject, entrance, request, one, open_call, backlog)
        finally:
            self.open.remove(open_call)
            backlog.end(open_call)

    def _backlog_of(self, subject: str, entrance: str) -> Backlog:
        backlog = self._backlogs.get(entrance)
        if backlog is None:
            backlog = self._backlogs[entrance] = Backlog(subject)
        return backlog

    async def _until_answered(
        self,
        subject: str,
        entrance: str,
        request: Call,
        one: Callable[[], str],
        open_call: OpenCall,
        backlog: Backlog,
    ) -> Message:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_s
        failures: _Failures | None = None
        by_name = False  # the group has a worker that is frozen, perhaps, and would be given the next try too
        if not backlog.start():
            request = await backlog.wait(open_call, request, deadline)
        while True:
            if not self._bus.is_connected:
                await self._bus.until_connected(deadline - loop.time())
            reconnects = self._bus.reconnects
            chosen = one()
            called = chosen or (await self._living(subject, deadline) if by_name else "") or entrance
            try:
                return await self._once(called, request, deadline, backlog)
            except NoWorker as error:
                if chosen:
                    continue  # gone or full: it did not run, and another one may have it
                interrupted = not self._bus.is_stable
                if backlog is not self._of_sessions:
                    request = await self._wait_for_worker(subject, request, deadline, open_call, backlog, interrupted)
                    continue
                if not interrupted:
                    text = f"the worker of {subject} is gone"
                    is_lost = request.num_lost > 0
                    raise RolloutError(FailureClass.SESSION_LOST, text) if is_lost else SessionGone(text) from None
                problem: RolloutError = error
            except CallLost as error:
                problem = error
                interrupted = not self._bus.is_connected or self._bus.reconnects != reconnects
                by_name = backlog is not self._of_sessions
                open_call.unserved_since = None
            except RolloutError as error:
                if error.failure_class is not FailureClass.SATURATED:
                    raise
                problem = error
                interrupted = False
            failures = failures or _Failures(deadline, request.num_lost)
            pause_s = failures.pause_s(problem, interrupted)
            if pause_s is None and isinstance(problem, CallLost) and backlog is self._of_sessions:
                # Frozen, or cut off with its machine, of which the server hears nothing for a minute.
                raise RolloutError(FailureClass.SESSION_LOST, f"the worker of {subject} does not answer")
            if pause_s is None:
                problem.num_lost = failures.num_lost
                raise problem
            await asyncio.sleep(pause_s)
            request = _again(request, deadline - loop.time(), failures.num_lost, problem)

    async def _wait_for_worker(
        self,
        subject: str,
        request: Call,
        deadline: float,
        open_call: OpenCall,
        backlog: Backlog,
        interrupted: bool,
    ) -> Call:
        """Return a request that no worker took, with the time that is left, once it may be sent again."""
        if interrupted:
            open_call.unserved_since = None
        elif backlog.is_due(open_call):
            # Workers of an unserved subject may live all the same: full ones leave it until they have room.
            is_living = bool(await self._living(subject, deadline))
            backlog.found(living=is_living)
            if not is_living:
                raise NoWorker(subject, request.num_lost)
        return await backlog.refused(open_call, request, deadline)

    async def _living(self, subject: str, deadline: float) -> str:
        """Return the own subject of a worker in a subject's group that answers now; empty: none does."""
        timeout_s = min(SEARCH_S, deadline - asyncio.get_running_loop().time())
        if timeout_s <= 0:
            return ""
        name, role = subject.rpartition(".")[2], subjects.answered_by(subject)
        try:
            found = await first_to_answer(self._bus, name, role, timeout_s=timeout_s)
            return "" if found is None else subjects.of_worker(subject, found.id)
        except (BusError, subjects.BadToken):
            return ""

    async def send(self, subject: str, message: Message) -> None:
        """Send a message that has no answer; it is lost silently if no worker receives it."""
        with contextlib.suppress(BusError):
            await self._bus.publish(subject, encode(message))

    async def _once(self, subject: str, request: Call, deadline: float, backlog: Backlog) -> Message:
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
            pending.timer = loop.call_at(min(deadline, loop.time() + ACCEPT_TIMEOUT_S), self._not_accepted, pending)
            await self._bus.publish(subject, body, reply=pending.reply, headers=tracing.headers())
            reply = await pending.future
            if isinstance(reply, BlobRef):
                reply = await blobs.follow(self._bus, reply, decode_reply, "call")
            if type(reply) not in ANSWERS[type(request)]:
                raise BadMessage(f"{type(reply).__name__} does not answer {type(request).__name__}")
        except asyncio.CancelledError as error:
            if pending.in_session and CancelReason.HANDED_OVER in error.args:
                # The rollout continues in another process, which makes the call again and gets the same answer.
                self._handed_over.add(pending.reply)
            elif pending.worker is not None:
                self._cancel(pending.worker, pending.reply)
            if pending.future.done() and not pending.future.cancelled() and pending.future.exception() is None:
                self._close_late_session(pending.future.result())
            raise
        except BadMessage as error:
            of_model = isinstance(request, Generate | GenerateNext | ReadPrompt)
            failure_class = FailureClass.MODEL_FAILED if of_model else FailureClass.VERIFIER_FAILED
            raise RolloutError(failure_class, f"unreadable reply on {subject}: {error}") from None
        except Denied as error:
            raise RolloutError(FailureClass.NO_WORKER, str(error), retryable=False, curable=True) from None
        except BusError as error:
            raise CallLost(str(error)) from None
        finally:
            self._forget(pending)
        if isinstance(reply, Fail):
            if reply.failure_class is FailureClass.WORKER_LOST:
                raise CallLost(reply.message)
            raise RolloutError(reply.failure_class, reply.message, retryable=reply.retryable, curable=reply.curable)
        return reply

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
            return await blobs.fit_call(self._bus, body, role, request=request, patience_s=left_s)
        except TimeoutError:
            text = f"no room for a large request to {subject} before its deadline"
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, text) from None
        except BadMessage as error:
            text = f"the request to {subject} has no wire form: {error}"
            raise RolloutError(FailureClass.BAD_REQUEST, text) from None
        except Denied:
            raise
        except BusError as error:
            raise CallLost(f"a large request could not be sent: {error}") from None

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
        pending.id = call_id(pending.reply)
        self._of_worker.setdefault(worker, {})[pending.id] = pending
        if worker not in self._probes:
            self._probes[worker] = asyncio.create_task(self._probe(worker))

    def _not_accepted(self, pending: _Pending) -> None:
        loop = asyncio.get_running_loop()
        assert pending.timer is not None
        if loop.time() >= pending.deadline:
            self._on_timeout(pending)
        elif loop.time() - pending.timer.when() > SUSPENDED_S:
            pending.timer = loop.call_at(
                min(pending.deadline, loop.time() + ACCEPT_TIMEOUT_S), self._not_accepted, pending
            )
        elif not pending.future.done():
            pending.future.set_exception(CallLost(f"no worker accepted the call on {pending.subject}"))

    def _on_failed(self, pending: _Pending, error: BusError) -> None:
        if pending.worker is None and not pending.future.done():
            pending.future.set_exception(error)

    def _on_timeout(self, pending: _Pending) -> None:
        if not pending.future.done():
            text = f"no reply on {pending.subject} before its deadline"
            pending.future.set_exception(RolloutError(FailureClass.DEADLINE_EXCEEDED, text))
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
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            calls = dict(self._of_worker.get(worker, {}))
            reconnects = self._bus.reconnects
            asked_at = loop.time()
            if not self._bus.is_connected:
                continue
            try:
                ping = encode(Ping(calls=list(calls)))
                answer = await self._bus.request(subjects.ping(*worker), ping, timeout_s=PROBE_TIMEOUT_S)
                gone = _decode_pong(answer.data).gone
                reason = "finished, but its answer was lost"
            except NoResponders:
                gone, reason = list(calls), "is gone"
            except (NoAnswer, BadMessage):
                gone, reason = list(calls), "does not answer"
            except BusError:
                continue
            suspended = loop.time() - asked_at > PROBE_TIMEOUT_S + SUSPENDED_S
            if suspended or self._bus.reconnects != reconnects or not self._bus.is_stable:
                continue  # the silence was ours, or the worker is not back yet
            for call in gone:
                pending = calls.get(call)
                if pending is not None and not pending.future.done():
                    pending.future.set_exception(CallLost(f"worker {worker.id} {reason} ({pending.subject})"))
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
        self._background.start(self.send(subjects.cancel(*worker), Cancel(call=call_id(reply))))


def _name(request: Call) -> str:
    """Return what the span of a request is called."""
    if isinstance(request, ToolCall):
        return f"tool {request.name}"
    return "generate" if isinstance(request, GenerateNext) else type(request).__name__.lower()


def _again(request: Call, left_s: float, num_lost: int, problem: RolloutError) -> Call:
    if left_s <= 0:
        raise problem
    return msgspec.structs.replace(request, timeout_s=left_s, num_lost=num_lost)
