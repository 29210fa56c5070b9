"""The calls that a process has: accepted, watched until their deadlines, answered, cancelled.

A caller asks whether its call is still here (`gymq.bus.rpc.tries`), so a call is forgotten only after its answer is on
its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

from gymq.authoring import Precedence
from gymq.bus import Bus, BusError, Msg, blobs
from gymq.bus.rpc.loop_fairness import Turns
from gymq.bus.rpc.quarantine import SuspectCalls
from gymq.processes.background import RunningTasks
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.messages import (
    MAX_TEXT_CHARS,
    Accepted,
    BadMessage,
    BlobRef,
    Call,
    Cancel,
    Fail,
    FailureClass,
    Message,
    Ping,
    Pong,
)
from gymq.redaction import redact, without_credentials

log = logging.getLogger("gymq.serving")

Reply = str | Callable[[bytes], None]
"""Where an answer goes: to a subject, or to a function of this process; empty: it is not wanted."""

_decode_ping = Decoder(Ping)
_decode_cancel = Decoder(Cancel)


class Job:
    """One call.

    Attributes:
        drop: removes it from the queue of its service, while it has not started.
        trace: the caller's span, if the call names it.
        cost: known once it is answered.
    """

    __slots__ = (
        *("cost", "deadline", "drop", "expired", "id", "num_bytes", "precedence", "reply", "request"),
        *("subject", "task", "timer", "trace"),
    )

    def __init__(
        self,
        subject: str,
        request: Call | BlobRef,
        num_bytes: int,
        drop: Callable[[Job], None],
        *,
        reply: Reply,
        trace: str,
        deadline: float,
    ) -> None:
        self.drop = drop
        self.subject = subject
        self.reply = reply
        self.num_bytes = num_bytes
        self.id = ""  # known once it is accepted
        self.request = request
        self.precedence = Precedence(request.priority, request.share)
        self.trace = trace
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.deadline = deadline
        self.expired = False
        self.cost: float | None = None

    @property
    def inbox(self) -> str:
        """The subject on which another process waits for the answer; empty: none does."""
        return self.reply if isinstance(self.reply, str) else ""


class Jobs:
    """The calls of one process.

    Attributes:
        suspects: those at work that may end the process.
        context: in which calls run; it holds nothing of their callers.
        has_been_blocked: a call has blocked the event loop: others may, so all are accepted before they run.
    """

    def __init__(self, bus: Bus, worker: str, suspects: SuspectCalls | None = None) -> None:
        """Prepare for the calls of a process.

        Args:
            worker: the process's id, one token.
        """
        self.bus = bus
        self.worker = worker
        self.loop = asyncio.get_running_loop()
        self.suspects = suspects or SuspectCalls()
        self.context = copy_context()
        self.is_stopping = False
        self.has_been_blocked = False
        self.all: set[Job] = set()
        self._accepted: dict[str, Job] = {}  # by call id
        self._turns = Turns()
        self._paused_until = 0.0
        self._background = RunningTasks()

    async def listen(self) -> None:
        """Answer the callers that ask for their calls or cancel them, from now on."""
        await self.bus.subscribe(subjects.PING.of(self.bus.role, self.worker), self._on_ping)
        await self.bus.subscribe(subjects.CANCEL.of(self.bus.role, self.worker), self._on_cancel)

    def pause(self) -> None:
        """Begin no call for a moment, in which the loop accepts all that has waited: the next call may block it too."""
        self.has_been_blocked = True
        self._paused_until = self.loop.time() + 0.5

    async def take_turn(self) -> None:
        """Wait for a round of the event loop in which no other call begins, and for the end of a pause."""
        async with self._turns.take():
            await asyncio.sleep(self._paused_until - self.loop.time())

    async def send(self, reply: Reply, message: Message, failure_class: FailureClass) -> None:
        """Answer; a reply that is too large is stored as a blob, one that cannot be sent becomes a failure."""
        try:
            await self._answer(reply, without_credentials(encode(message)))
            return
        except BadMessage as error:
            failure = fail_of(failure_class, f"the answer has no wire form: {error}")
        except BusError as error:
            failure = fail_of(FailureClass.COMPONENT_FAILED, f"the answer could not be sent: {error}", retryable=True)
        log.warning("%s", failure.message)
        with contextlib.suppress(BusError):
            await self._answer(reply, encode(failure))

    async def _answer(self, reply: Reply, body: bytes) -> None:
        if not isinstance(reply, str):
            reply(body)
            return
        if len(body) > self.bus.max_body_bytes:
            body = await blobs.store_call(self.bus, compressed(body), subjects.asked_by(reply))
        await self.bus.publish(reply, body)

    def lose(self, job: Job) -> None:
        """Notify a caller in this process that nothing answers its call: it does not ask, as other processes do."""
        if not isinstance(job.reply, str):
            job.reply(encode(fail_of(FailureClass.WORKER_LOST, "the call was stopped", retryable=True)))

    def forget(self, job: Job) -> None:
        """Remove a job that this process is done with."""
        if job.timer is not None:
            job.timer.cancel()
        self.all.discard(job)
        if self._accepted.get(job.id) is job:
            del self._accepted[job.id]

    def accept(self, job: Job) -> None:
        """Notify the caller that this process has the call, and watch its deadline from now on."""
        if job.timer is not None:
            job.timer.cancel()
        job.timer = self.loop.call_at(job.deadline, self._expire, job)
        if job.inbox:
            self.in_background(self._send_accepted(job))

    async def accept_at_once(self, job: Job) -> None:
        """Accept a call that may end this process, so that its caller notices that soon."""
        self.accept(job)
        if job.inbox:
            with contextlib.suppress(BusError):
                await self._send_accepted(job)
                await self.bus.flush()

    def _send_accepted(self, job: Job) -> Awaitable[None]:
        job.id = subjects.call_id(job.inbox)
        self._accepted[job.id] = job
        return self.bus.publish(job.inbox, encode(Accepted(role=self.bus.role, worker=self.worker)))

    def _expire(self, job: Job) -> None:
        job.expired = True
        if job.reply and (job.task is None or not job.inbox):  # other processes watch their deadlines themselves
            verb = "waited" if job.task is None else "ran"
            failure = fail_of(FailureClass.DEADLINE_EXCEEDED, f"the call {verb} until its deadline")
            self.in_background(self._answer(job.reply, encode(failure)))
        self.cancel(job)

    def cancel(self, job: Job) -> None:
        """Stop a call that runs, or remove it where it waits."""
        if job.task is not None:
            job.task.cancel()
        else:
            job.drop(job)

    def in_background(self, work: Any) -> None:
        """Do what no call waits for; an error is a warning in the log."""
        self._background.start(_ignore_errors(work))

    async def _on_ping(self, message: Msg) -> None:
        if not message.reply.startswith(subjects.INBOX_PREFIX):
            return
        try:
            ping = _decode_ping(message.data)
        except BadMessage:
            return
        gone = [call for call in ping.calls if call not in self._accepted]
        await self.bus.publish(message.reply, encode(Pong(gone=gone)))

    async def _on_cancel(self, message: Msg) -> None:
        try:
            job = self._accepted.get(_decode_cancel(message.data).call)
        except BadMessage:
            return
        if job is not None:
            self.cancel(job)


def fail_of(failure_class: FailureClass, text: str, *, retryable: bool = False, curable: bool = False) -> Fail:
    """Return a failure whose text fits into a message, whatever its source."""
    text = redact(text)[:MAX_TEXT_CHARS].encode(errors="replace").decode()
    return Fail(failure_class=failure_class, message=text, retryable=retryable, curable=curable)


def describe(error: BaseException) -> str:
    """Return the kind and the text of any error, even of one that cannot say its text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


async def _ignore_errors(work: Any) -> None:
    try:
        await work
    except Exception as error:
        log.warning("%s: %s", type(error).__name__, error)
