"""The session of a rollout in its environment: seeded, called, verified, closed, and rebuilt when its worker dies."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gymq import responses
from gymq.agent import offered_tools
from gymq.agent.calls import RolloutCalls, handed_over
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import (
    Close,
    FailureClass,
    Message,
    Seed,
    Seeded,
    Stage,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.resources import Verdict
from gymq.responses.items import NO_ARGUMENTS

RESERVED_TOOL_NAMES = frozenset({"seed", "seed_session", "verify", "close", "aggregate_metrics"})
"""Names of a session's own requests, which a model cannot call as tools."""


class Session(AbstractAsyncContextManager["Session"]):
    """The rollout's side of a session: seeded on entry, closed on exit. Its calls run one after the other.

    The number of a call depends on the tool, its arguments and how often this call was made before, not on other calls.
    So a call keeps its number if calls overtake each other in a replay, and the worker answers it from memory.
    """

    def __init__(self, rollout: RolloutCalls, resources: str, *, seeded: bool = True) -> None:
        self._rollout = rollout
        self._resources = resources
        self._seeded = seeded
        self._address: str | None = None
        self._replayable = False
        self._done: list[tuple[ToolCall, str]] = []  # the tool calls so far, and their outputs
        self._num_called: dict[bytes, int] = {}  # by digest of tool and arguments
        self._rebuilding = asyncio.Lock()
        self._of_session = ""  # suffix of the keys of its effects

    async def __aenter__(self) -> Session:
        rollout = self._rollout
        rollout.num_sessions += 1
        self._of_session = f" session {rollout.num_sessions}" if rollout.num_sessions > 1 else ""
        wants_tools = self._seeded and offered_tools.needs_schemas(rollout.params)
        seeded = await self._reply_to_seed(wants_tools)
        if seeded is None:
            return self
        self._address = seeded.session
        self._replayable = seeded.replayable
        if wants_tools and seeded.tools is not None:
            tools = offered_tools.offered(rollout.params, seeded.tools, seeded.more_tools, self._resources)
            if tools:
                rollout.offer(tools)
        moved_to = None if rollout.recorder is None or self._of_session else rollout.recorder.session
        if self._address is not None and moved_to is not None:
            self._address = moved_to
        return self

    async def _reply_to_seed(self, wants_tools: bool) -> Seeded | None:
        """Return the worker's reply to a seed; None if it keeps no state and its tools are not needed.

        The tools are part of the model's input, so a replayed rollout takes them from its journal, even if the
        environment now offers others.
        """
        rollout, key = self._rollout, f"seed{self._of_session}"
        known = rollout.stateless.get(self._resources)
        if known is None or (wants_tools and known.tools is None):
            seeded = await self._seed(key=key, with_tools=wants_tools)
            if seeded.session is None:
                rollout.stateless[self._resources] = seeded
            return seeded
        if not wants_tools:
            return None
        if rollout.recorder is None:
            return known

        async def remembered() -> Message:
            return known

        replayed = await rollout.recorder.effect(key, True, remembered)
        assert isinstance(replayed, Seeded)
        return replayed

    async def _seed(self, key: str | None, *, with_tools: bool = False) -> Seeded:
        rollout = self._rollout
        row = rollout.row if self._seeded else None
        timeout_s = self._timeout(rollout.options.tool_timeout_s)
        request = Seed(rollout=rollout.id, timeout_s=timeout_s, row=row, with_tools=with_tools)
        subject = subjects.SEED.of(self._resources)
        seeded = await rollout.call(subject, request, Stage.SEED, key=key, may_wait=True)
        assert isinstance(seeded, Seeded)
        return seeded

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Another process continues the rollout and, if it has a journal, its session.
        recorder = self._rollout.recorder
        is_resumed = handed_over(error) and recorder is not None
        if self._address is None or is_resumed:
            return
        # A session that is closed answers no call again, here or in another process that has the rollout now.
        if recorder is not None and error is None:
            recorder.close_later(self._close)
            return
        if recorder is not None:
            await recorder.confirm()
        await self._close()

    async def _close(self) -> None:
        assert self._address is not None
        await self._rollout.send(self._address, Close(rollout=self._rollout.id, timeout_s=60.0))

    async def call(self, item: responses.FunctionCall, *, by_model: bool = False) -> responses.FunctionCallOutput:
        """Run one `function_call` item; return the `function_call_output` to record. Tool errors are outputs too.

        Args:
            by_model: whether the model chose the tool, which must then not be one that only agents may call.
        """
        offered = not by_model or item["name"] in offered_tools.names(self._rollout.params)
        return responses.function_call_output(item["call_id"], await self._output_of(item, offered))

    async def _output_of(self, item: responses.FunctionCall, offered: bool) -> str:
        name, arguments = item["name"], item.get("arguments") or NO_ARGUMENTS
        try:
            json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": f"Invalid tool call arguments: {error!r}"})
        if name in RESERVED_TOOL_NAMES:
            return json.dumps({"error": f"there is no tool named {name!r}"})
        request = ToolCall(
            rollout=self._rollout.id,
            timeout_s=self._timeout(self._rollout.options.tool_timeout_s),
            number=self._number(name, arguments),
            name=name,
            arguments=arguments,
            offered=offered,
        )
        result = await self._send(request, Stage.TOOL)
        assert isinstance(result, ToolResult)
        if self._replayable:
            self._done.append((request, result.output))
        return result.output

    async def verify(self, response: Mapping[str, Any], row: bytes | None = None) -> Verdict:
        """Return the verdict on the response. A failed call is retried, as the response was expensive to generate.

        Args:
            row: the row for the verifier, JSON text; default: the rollout's.

        Raises:
            RolloutError: there is no verdict.
        """
        failed = 0
        while True:
            request = Verify(
                rollout=self._rollout.id,
                timeout_s=self._timeout(self._rollout.options.verify_timeout_s),
                number=self._number("verify"),
                row=self._rollout.row if row is None else row,
                response=dict(response),
            )
            try:
                verified = await self._send(request, Stage.VERIFY)
            except RolloutError as error:
                failed += 1
                retry = error.retries.verdict
                pause_s = None if retry is None else retry.pause_s(failed, left_s=self._rollout.until_deadline())
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
                continue
            assert isinstance(verified, Verified)
            return Verdict(verified.reward, **verified.verdict)

    async def _send(self, request: ToolCall | Verify, stage: Stage) -> Message:
        address = self._address
        try:
            return await self._send_once(request, stage)
        except RolloutError as error:
            if error.failure_class is not FailureClass.SESSION_LOST:
                raise
            if self._address is None:
                # The worker keeps state now; the next attempt seeds it.
                self._rollout.stateless.pop(self._resources, None)
            if not self._replayable or (self._of_session and self._rollout.recorder is not None):
                raise  # a journal records the move of one session only
        async with self._rebuilding:
            if self._address == address:
                await self._rebuild()
        return await self._send_once(request, stage)

    async def _send_once(self, request: ToolCall | Verify, stage: Stage) -> Message:
        subject = self._address or subjects.STATELESS.of(self._resources)
        may_wait = self._address is not None
        return await self._rollout.call(subject, request, stage, key=self._key(request), may_wait=may_wait)

    async def _rebuild(self) -> None:
        """Restore the lost session on another worker by repeating its calls."""
        address = (await self._seed(key=None)).session
        if address is None:
            raise RolloutError(FailureClass.SESSION_LOST, f"{self._resources} no longer keeps state")
        for request, output in self._done:
            again = await self._rollout.call(address, request, Stage.TOOL)
            if not isinstance(again, ToolResult) or again.output != output:
                text = f"a rebuilt session of {self._resources} answered {request.name} differently"
                raise RolloutError(FailureClass.SESSION_LOST, text, stage=Stage.TOOL)
        self._address = address
        if self._rollout.recorder is not None:
            await self._rollout.recorder.moved(address)

    def _number(self, *call: str) -> int:
        digest = hashlib.blake2b("\0".join(call).encode(errors="surrogatepass"), digest_size=8).digest()
        number = self._num_called[digest] = self._num_called.get(digest, 0) + 1
        return (int.from_bytes(digest) + number) % subjects.MAX_INDEX

    def _key(self, request: ToolCall | Verify) -> str:
        if isinstance(request, Verify):
            return f"verify {request.number}{self._of_session}"
        return f"tool {request.number} {request.name}{self._of_session}"

    def _timeout(self, limit_s: float) -> float:
        return min(self._rollout.time_left(), limit_s)
