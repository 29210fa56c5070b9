"""The sessions of one resources worker: state in memory, calls one after another, repeated calls answered once.

Nothing here knows NATS: requests are messages, answers are messages or `RolloutError`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from gymq.failures import (
    InvalidTask,
    LoopBlocked,
    RolloutError,
    ToolError,
    failing_as,
    no_such_tool,
)
from gymq.processes import KillableProcesses
from gymq.protocol.codec import check_encodable
from gymq.protocol.messages import (
    BadMessage,
    Close,
    Closed,
    FailureClass,
    Message,
    ResourcesRequest,
    Seed,
    Seeded,
    Stage,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.redaction import redact
from gymq.resources import Resources, Verdict, VerifyRequest, tool_output
from gymq.resources.judge_calls import recording
from gymq.responses import InvalidRequest
from gymq.responses.schema import check_items

log = logging.getLogger("gymq.resources")


class _Running:
    """A numbered call that runs, and how many requests wait for it."""

    __slots__ = ("num_waiting", "task")

    def __init__(self, task: asyncio.Task[Message | Exception]) -> None:
        self.task = task
        self.num_waiting = 0


class ResourcesSession:
    """The state of one rollout in one worker."""

    __slots__ = ("_answers", "_is_open", "_lock", "_owner", "_running", "_state", "last_used")

    def __init__(self, owner: LocalResources) -> None:
        self._owner = owner
        self._lock = asyncio.Lock()
        self._answers: dict[int, Message | Exception] = {}
        self._running: dict[int, _Running] = {}
        self._is_open = False
        self._state: Any = None  # None may also be the state that the author chose
        self.last_used = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Return whether it works on something, or something waits for that."""
        return self._lock.locked() or any(not running.task.done() for running in self._running.values())

    async def seed(self, row: bytes) -> None:
        resources = self._owner.resources
        async with self._lock:
            parsed = resources.parse_row(row, resources.seed_row_type)
            self._state = await (resources.reseed(self._state, parsed) if self._is_open else resources.open(parsed))
            self._is_open = True
            self.last_used = time.monotonic()

    async def answer(self, request: ToolCall | Verify) -> Message:
        """Answer a numbered call: compute the reply once, then return it again for as long as the session lives."""
        self.last_used = time.monotonic()
        answer = self._answers.get(request.number)
        if answer is None:
            answer = await self._wait_for(request)
            self.last_used = time.monotonic()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _wait_for(self, request: ToolCall | Verify) -> Message | Exception:
        """Run a call, or join it where it already runs: a request may repeat one whose sender has stopped waiting.

        The call is stopped when the last of its requests is cancelled.
        """
        running = self._running.get(request.number)
        if running is None or running.task.cancelled():
            running = _Running(asyncio.create_task(self._run_alone(request)))
            self._running[request.number] = running
        running.num_waiting += 1
        try:
            return await asyncio.shield(running.task)
        except asyncio.CancelledError:
            if running.num_waiting == 1:
                running.task.cancel()
            raise
        finally:
            running.num_waiting -= 1

    async def _run_alone(self, request: ToolCall | Verify) -> Message | Exception:
        answer: Message | Exception
        async with self._lock:
            try:
                answer = await self._run(request)
            except asyncio.CancelledError:
                if isinstance(request, Verify):
                    raise  # it changes nothing, so it may run again
                text = f"call {request.number} was stopped while it ran, so the state is unknown"
                answer = RolloutError(FailureClass.SESSION_LOST, text)
            except SystemExit as error:
                answer = RuntimeError(f"SystemExit: {error}")  # raised in a task, it would end the whole worker
            except Exception as error:
                answer = error
        self._answers[request.number] = answer
        del self._running[request.number]
        return answer

    async def _run(self, request: ToolCall | Verify) -> Message:
        if isinstance(request, Verify):
            return await self._owner.verify(request, self._state)
        state = self._state
        if not self._is_open:
            try:
                state = await self._owner.resources.open_unseeded()
            except ToolError as error:
                return ToolResult(output=tool_output({"error": error.message}), status=error.status)
        result = await self._owner.call_tool(request, state)
        if result.status not in (404, 422):  # a refused call has no effect, so it opens no session either
            self._state = state
            self._is_open = True
        return result

    async def close(self) -> None:
        async with self._lock:
            if self._is_open:
                self._is_open = False
                state, self._state = self._state, None
                await self._owner.resources.close(state)


class LocalResources:
    """Answers the requests to one `Resources` object in this process."""

    def __init__(self, resources: Resources[Any], processes: KillableProcesses | None = None) -> None:
        self.resources = resources
        self.sessions: dict[str, ResourcesSession] = {}
        self._processes = resources.processes = processes or KillableProcesses()

    async def open(self, request: Seed, address: str) -> Seeded:
        """Open a session; its subject is `address` with the session's id in place of `*`."""
        schemas = self._schemas if request.with_tools else {}
        if not self.resources.stateful:
            return Seeded(session=None, **schemas)
        if len(self.sessions) >= self.resources.max_sessions:
            raise RolloutError(
                FailureClass.SATURATED,
                f"{self.resources.name} holds its limit of {self.resources.max_sessions} sessions",
            )
        session_id = secrets.token_hex(12)
        # It counts before it is seeded, since that may take time and room.
        session = self.sessions[session_id] = ResourcesSession(self)
        if request.row is not None:
            with ExitStack() as if_it_fails:
                if_it_fails.callback(self.sessions.pop, session_id, None)
                await self._guarded(session.seed(request.row), Stage.SEED)
                if_it_fails.pop_all()
        return Seeded(session=address.replace("*", session_id), replayable=self.resources.replayable, **schemas)

    @cached_property
    def _schemas(self) -> dict[str, Any]:
        tools = self.resources.tools.values()
        return {
            "tools": [tool.schema() for tool in tools if tool.offered],
            "more_tools": [tool.schema() for tool in tools if not tool.offered],
        }

    async def in_session(self, session_id: str, request: ResourcesRequest) -> Message:
        """Answer a request that was sent to a session's subject."""
        if isinstance(request, Close):
            await self.close(session_id)
            return Closed()
        session = self.sessions.get(session_id)
        if session is None:
            raise RolloutError(FailureClass.SESSION_LOST, f"{self.resources.name} has no session {session_id}")
        if isinstance(request, Seed):
            if request.row is not None:
                await self._guarded(session.seed(request.row), Stage.SEED)
            return Seeded(session=None)
        return await session.answer(request)

    async def without_session(self, request: ResourcesRequest) -> Message:
        """Answer a request to a stateless worker."""
        if self.resources.stateful:
            raise RolloutError(FailureClass.SESSION_LOST, f"{self.resources.name} keeps state: seed a session first")
        if isinstance(request, Verify):
            return await self.verify(request, None)
        if isinstance(request, ToolCall):
            return await self.call_tool(request, None)
        raise RolloutError(FailureClass.BAD_REQUEST, f"{self.resources.name} keeps no sessions")

    async def call_tool(self, request: ToolCall, state: Any) -> ToolResult:
        """Run one tool; any error that it raises is text for the model."""
        try:
            arguments = json.loads(request.arguments)
        except (ValueError, RecursionError) as error:
            return ToolResult(output=tool_output({"error": f"Invalid tool call arguments: {error}"}), status=422)
        try:
            if not request.offered and not self._may_be_guessed(request.name):
                raise no_such_tool(request.name)
            result = await self.resources.call_tool(state, request.name, arguments)
            return ToolResult(output=tool_output(result))
        except ToolError as error:
            return ToolResult(output=tool_output({"error": error.message}), status=error.status)
        except RolloutError:
            raise
        except Exception as error:
            text = f"{request.name} failed: {type(error).__name__}: {error}"
            return ToolResult(output=tool_output({"error": redact(text)}), status=500)

    def _may_be_guessed(self, name: str) -> bool:
        """Return whether a model may call a tool that its row does not name; names of no tool are the author's."""
        tool = self.resources.tools.get(name)
        return tool is None or tool.offered

    async def verify(self, request: Verify, state: Any) -> Verified:
        """Score a response.

        Raises:
            RolloutError: there is no verdict; a verdict is never made up.
        """
        try:
            _check_output(request.response)
        except InvalidRequest as error:
            raise InvalidTask(f"the response to verify does not fit: {error}").at(Stage.VERIFY) from None
        response: Any = request.response  # checked above
        verify_request = VerifyRequest(self.resources.parse_row(request.row), response, state)
        with recording() as judge_calls:
            verdict: Any = await self._guarded(self.resources.verify(verify_request), Stage.VERIFY)
        if not isinstance(verdict, Verdict):
            verdict = self._from_number(verdict)
        if not isinstance(verdict.reward, float) or not math.isfinite(verdict.reward):
            raise RolloutError(
                FailureClass.VERIFIER_FAILED, f"{self.resources.name} returned the reward {verdict.reward!r}"
            )
        low, high = self.resources.reward_range
        if not low <= verdict.reward <= high:
            text = (
                f"{self.resources.name} returned the reward {verdict.reward!r}, its reward_range is {low:g} to {high:g}"
            )
            raise RolloutError(FailureClass.VERIFIER_FAILED, text)
        members = {**verdict.fields, **judge_calls.fields()}
        try:
            check_encodable(members, "$.verdict")
        except BadMessage:
            try:
                members = _with_whole_characters(members)
                check_encodable(members, "$.verdict")
            except (BadMessage, RecursionError) as error:
                text = f"{self.resources.name} returned a verdict with a field that cannot be encoded: {error}"
                raise RolloutError(FailureClass.VERIFIER_FAILED, text, retryable=False) from None
        return Verified(reward=verdict.reward, verdict=members)

    def _from_number(self, returned: Any) -> Verdict:
        try:
            return Verdict(returned)
        except (TypeError, ValueError, OverflowError):
            text = (
                f"{self.resources.name}.verify returned {type(returned).__name__}, neither a Verdict nor a number: "
                "return gymq.Verdict(reward), or the reward as a float, int or bool"
            )
            raise RolloutError(FailureClass.VERIFIER_FAILED, text) from None

    async def _guarded(self, work: Any, stage: Stage) -> Any:
        name = self.resources.name
        with failing_as(FailureClass.VERIFIER_FAILED, f"{name} failed to {stage}", stage):
            try:
                return await work
            except ToolError as error:
                raise InvalidTask(error.message) from None
            except TimeoutError:
                raise RolloutError(FailureClass.VERIFIER_FAILED, f"{name} did not finish its {stage} in time") from None

    async def close(self, session_id: str) -> None:
        """Forget a session and release what it holds."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        try:
            await session.close()
        except (Exception, LoopBlocked):
            log.exception("%s: a session was not closed cleanly", self.resources.name)

    async def close_all(self) -> None:
        """Forget all sessions."""
        await asyncio.gather(*(self.close(session_id) for session_id in self.sessions))

    async def close_idle(self) -> int:
        """Close the sessions that were unused for their time to live; return how many."""
        oldest = time.monotonic() - self.resources.session_ttl_s
        idle = [
            session_id
            for session_id, session in self.sessions.items()
            if session.last_used < oldest and not session.is_busy
        ]
        await asyncio.gather(*(self.close(session_id) for session_id in idle))
        return len(idle)


def _check_output(response: dict[str, Any]) -> None:
    output = response.get("output")
    if response.get("contains_transitions") is True and isinstance(output, list):
        # Agents that step an environment may give all they had said after each step.
        for step, state in enumerate(output):
            check_items(state, f"output[{step}]")
    else:
        check_items(output, "output")


def _with_whole_characters(value: Any) -> Any:
    """Return a copy of a value with `?` for each half of a surrogate pair, which no message can carry.

    JSON inside a reply can spell one, and a verdict may repeat what it read there.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {
            _with_whole_characters(name) if isinstance(name, str) else name: _with_whole_characters(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_whole_characters(item) for item in value]
    return value
