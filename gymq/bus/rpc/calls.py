"""Calls that may take minutes: tried again where that is safe, or held back while no worker has room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gymq.authoring import current_call
from gymq.bus import Bus, BusError
from gymq.bus.discovery import first_to_answer
from gymq.bus.rpc import tracing
from gymq.bus.rpc.backlog import Backlog, NoWorker
from gymq.bus.rpc.process_reports import OpenCall, OpenCalls
from gymq.bus.rpc.serving import Server
from gymq.bus.rpc.tries import Tries, in_session
from gymq.failures import INTERRUPTED, RETRIES, RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import Call, FailureClass, GenerateNext, Message, Priority, ToolCall


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

    def __init__(self, bus: Bus, server: Server | None = None) -> None:
        """Prepare the calls of a process.

        Args:
            server: of the services of this process, whose calls do not leave it.
        """
        self._bus = bus
        self._tries = Tries(bus, server)
        self.open = OpenCalls()
        self._backlogs: dict[str, Backlog] = {}  # by the subject on which workers take the calls
        self._of_sessions = Backlog("")  # each has one worker, which takes all of its calls

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
        of_session = in_session(subject)
        is_urgent = request.priority is Priority.URGENT and not of_session
        entrance = subjects.urgent_entrance(subject) if is_urgent else subject
        backlog = self._of_sessions if of_session else self._backlogs.get(entrance)
        if backlog is None:
            backlog = self._backlogs[entrance] = Backlog(subject)
        open_call = self.open.add(request)
        try:
            with tracing.call(_name(request), subject):
                return await self._until_answered(subject, entrance, request, one, open_call, backlog)
        finally:
            self.open.remove(open_call)
            backlog.end(open_call)

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
                # What failed here may succeed elsewhere: this worker is full, or about to end.
                return await self._tries.once(called, request, deadline, backlog, elsewhere=failures is not None)
            except NoWorker as error:
                if chosen:
                    continue  # gone or full: it did not run, and another one may have it
                interrupted = not self._bus.is_stable
                if backlog is not self._of_sessions:
                    request = await self._wait_for_worker(subject, request, deadline, open_call, backlog, interrupted)
                    continue
                if not interrupted:
                    text = f"the worker of {subject} is gone"
                    gone = RolloutError(FailureClass.SESSION_LOST, text)
                    gone.is_innocent = not request.num_lost
                    raise gone from None
                problem: RolloutError = error
            except RolloutError as error:
                problem = error
                if error.failure_class is FailureClass.WORKER_LOST:
                    interrupted = not self._bus.is_connected or self._bus.reconnects != reconnects
                    by_name = backlog is not self._of_sessions
                    open_call.unserved_since = None
                elif error.failure_class is FailureClass.SATURATED:
                    interrupted = False
                else:
                    raise
            failures = failures or _Failures(deadline, request.num_lost)
            pause_s = failures.pause_s(problem, interrupted)
            if pause_s is None:
                if problem.failure_class is FailureClass.WORKER_LOST and backlog is self._of_sessions:
                    # Frozen, or cut off with its machine, of which the server hears nothing for a minute.
                    raise RolloutError(FailureClass.SESSION_LOST, f"the worker of {subject} does not answer")
                problem.num_lost = failures.num_lost
                raise problem
            await asyncio.sleep(pause_s)
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise problem
            request = msgspec.structs.replace(request, timeout_s=left_s, num_lost=failures.num_lost)

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
        timeout_s = min(2.0, deadline - asyncio.get_running_loop().time())
        if timeout_s <= 0:
            return ""
        name, role = subject.rpartition(".")[2], subjects.answered_by(subject)
        try:
            found = await first_to_answer(self._bus, name, role, timeout_s=timeout_s)
            return "" if found is None else subjects.of_worker(subject, found.id)
        except (BusError, subjects.BadToken):
            return ""

    async def send(self, subject: str, request: Call) -> None:
        """Send a request without waiting for an answer; it is lost silently if no worker serves it."""
        await self._tries.send(subject, request)


def _name(request: Call) -> str:
    if isinstance(request, ToolCall):
        return f"tool {request.name}"
    return "generate" if isinstance(request, GenerateNext) else type(request).__name__.lower()
