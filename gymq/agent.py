"""Agent: the loop that turns a task into a verified rollout, as an author writes it.

A loop takes everything that can differ between two runs (model replies, tool results, verdicts) from `Rollout` and
`Session`; these number every effect, so that the same loop can be run again over recorded effects.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import msgspec
import pydantic

from gymq import responses, subjects
from gymq.authoring import Reference, Worker, WorkerOptions, not_implemented
from gymq.bus import BusError
from gymq.messages import (
    Call,
    Close,
    FailureClass,
    Generate,
    Generated,
    Message,
    Seed,
    Seeded,
    Stage,
    Timing,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.outcomes import GOES_ON_ELSEWHERE, InvalidTask, RolloutError
from gymq.resources import Verdict
from gymq.staleness import StalenessLimit
from gymq.tokens import encode_json

log = logging.getLogger("gymq.agent")

# Names a model cannot call although a session understands them.
RESERVED_TOOL_NAMES = frozenset({"seed", "seed_session", "verify", "close", "aggregate_metrics"})


MAX_TIMINGS = 4096  # calls of a rollout whose times are stored with it


class Caller(Protocol):
    """Sends one request and gives the reply."""

    async def call(self, subject: str, request: Call) -> Message:
        """Raises RolloutError when there is no reply."""
        ...

    async def tell(self, subject: str, request: Call) -> None:
        """Send without waiting for an answer."""
        ...


class Recorder(Protocol):
    """Remembers the effects of a rollout beyond the life of this process."""

    session: str | None  # where the rollout's session was moved to

    async def effect(self, key: str, in_session: bool, perform: Callable[[], Awaitable[Message]]) -> Message: ...

    async def moved(self, session: str) -> None: ...


class AgentOptions(WorkerOptions):
    """Options every agent has."""

    resources_server: Reference | None = None
    model_server: Reference | None = None
    skip_verification: bool = False
    skip_verification_reward: pydantic.FiniteFloat = 0.0
    model_timeout_s: pydantic.PositiveFloat = 1200.0  # for one model call, retries included
    tool_timeout_s: pydantic.PositiveFloat = 600.0
    verify_timeout_s: pydantic.PositiveFloat = 600.0


class _RowHead(msgspec.Struct):
    responses_create_params: dict[str, Any]


_decode_head = msgspec.json.Decoder(_RowHead).decode
_canonical = msgspec.json.Encoder(enc_hook=encode_json, order="sorted").encode


@dataclass(frozen=True)
class Reply:
    """What the model answered in one call."""

    response: dict[str, Any]

    @property
    def output(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.response["output"]
        return items

    @property
    def function_calls(self) -> list[dict[str, Any]]:
        return [item for item in self.output if item.get("type") == "function_call"]

    @property
    def has_message(self) -> bool:
        return any(item.get("type") == "message" and item.get("role") == "assistant" for item in self.output)

    @property
    def incomplete(self) -> bool:
        """The engine cut the reply short; calls in it must not be run."""
        return self.response.get("incomplete_details") is not None

    @property
    def overflowed(self) -> bool:
        """The conversation no longer fits into the model's context: the reply was cut short before its first token."""
        details = self.response.get("incomplete_details") or {}
        usage = self.response.get("usage") or {}
        if details.get("reason") != "max_output_tokens" or usage.get("output_tokens"):
            return False
        return all(map(responses.is_message, self.output)) and not responses.output_text(self.response)


class Rollout:
    """One rollout in progress: what an agent's loop is written against."""

    def __init__(
        self,
        caller: Caller,
        *,
        rollout_id: str,
        row: bytes,
        options: AgentOptions,
        deadline: float,
        attempt: int = 0,
        stateless: set[str] | None = None,
        staleness: StalenessLimit | None = None,
    ) -> None:
        """
        Args:
            row: JSON text of the task's row.
            deadline: on the event loop's clock, seconds.
            attempt: attempts at this rollout before.
            stateless: resources that are known to keep no state, shared by rollouts: they need not be seeded.
            staleness: how far the policy may move on; None: any number of updates.

        Raises:
            InvalidTask: the row has no usable `responses_create_params`.
        """
        try:
            params = responses.validate_params(_decode_head(row).responses_create_params)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidTask(f"row: {error}") from None
        except responses.InvalidRequest as error:
            raise InvalidTask(f"responses_create_params.{error}") from None
        self.id = rollout_id
        self.attempt = attempt
        self.row = row
        self.params = params
        given = params["input"]
        self.input: list[responses.Item] = [responses.user_message(given)] if isinstance(given, str) else given
        self.output: list[dict[str, Any]] = []
        self.recorder: Recorder | None = None
        self.timings: list[Timing] = []
        self._began = asyncio.get_running_loop().time()
        self._caller = caller
        self.options = options
        self._deadline = deadline
        self.stateless = set() if stateless is None else stateless
        self._staleness = staleness
        self._policy_versions: list[str] = []
        self._envelope: dict[str, Any] | None = None
        self._response: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None

    def time_left(self) -> float:
        """Seconds until the rollout's deadline.

        Raises:
            RolloutError: it has passed.
        """
        left = self.until_deadline()
        if left <= 0:
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, "the rollout's time is over")
        return left

    def until_deadline(self) -> float:
        """Seconds until the rollout's deadline; negative when it has passed."""
        return self._deadline - asyncio.get_running_loop().time()

    def session(self) -> Session:
        """The rollout's session in its resources worker; use it with `async with`."""
        if self.options.resources_server is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the agent's option `resources_server` is not set")
        return Session(self, self.options.resources_server.name)

    def steps(self, max_steps: int | None) -> Iterator[int]:
        """Counts model calls from 1, to `max_steps` (None or 0: without end)."""
        step = 1
        while not max_steps or step <= max_steps:
            yield step
            step += 1

    async def respond(self) -> Reply:
        """Ask the model to go on from all that was said; its output is recorded."""
        params = {**self.params, "input": self.input + self.output}
        reply = await self.ask(params, key=f"generate {len(params['input'])}")
        self.output += reply.output
        return reply

    async def ask(self, params: dict[str, Any], *, key: str | None = None) -> Reply:
        """Ask the model anything, in the rollout's name. Its output is not recorded.

        Args:
            params: checked parameters of a Responses request, `input` a list of items.
            key: what is asked, in short, for the journal; default: a digest of all of it.
        """
        if self.options.model_server is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the agent's option `model_server` is not set")
        self.check_staleness()  # before more is spent on it
        timeout_s = min(self.time_left(), self.options.model_timeout_s)
        request = Generate(rollout=self.id, timeout_s=timeout_s, params=params, session=f"{self.id}/{self.attempt}")
        subject = subjects.model(self.options.model_server.name)
        if key is None:
            key = f"generate {_digest(params)}"
        generated = await self.call(subject, request, Stage.MODEL, key=key)
        assert isinstance(generated, Generated)
        for version in generated.policy_versions or [""]:
            if version not in self._policy_versions:
                self._policy_versions.append(version)
        response = checked_response(generated.response)
        self._usage = responses.add_usage(self._usage, response.get("usage"))
        self._envelope = response
        return Reply(response)

    @property
    def policy_versions(self) -> list[str]:
        """The policy versions that answered, each once, the first one first; empty if the model has none."""
        return [] if self._policy_versions == [""] else list(self._policy_versions)

    def check_staleness(self) -> None:
        """Raises RolloutError, STALE: the policy has moved on by more updates than the rollout may be behind."""
        if self._staleness is not None:
            self._staleness.check(self._policy_versions)

    def record(self, item: dict[str, Any]) -> None:
        """Append an item, for example a tool's output, to what was said."""
        self.output.append(item)

    @property
    def response(self) -> dict[str, Any]:
        """What is verified and stored: the last reply's envelope around the output and the usage of all turns.

        An agent whose rollouts have another form sets it.
        """
        if self._response is not None:
            return self._response
        if self._envelope is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the model was never asked")
        merged = {**self._envelope, "output": self.output}
        if self._usage is not None:
            merged["usage"] = self._usage
        return merged

    @response.setter
    def response(self, response: dict[str, Any]) -> None:
        self._response = response

    @property
    def has_response(self) -> bool:
        return self._response is not None or self._envelope is not None

    async def call(
        self, subject: str, request: Call, stage: Stage, *, key: str | None = None, in_session: bool = False
    ) -> Message:
        """Send a request; the agent's effects all come here.

        Args:
            key: what is asked, in short, for the journal; None: the call is not recorded.
            in_session: whether the worker answers a repeated call from memory.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            if self.recorder is None or key is None:
                return await self._call(subject, request)
            return await self.recorder.effect(key, in_session, lambda: self._call(subject, request))
        except RolloutError as error:
            raise error.at(stage) from None
        finally:
            if len(self.timings) < MAX_TIMINGS:
                self.timings.append(Timing(stage, started - self._began, loop.time() - started))

    async def _call(self, subject: str, request: Call) -> Message:
        """Send a request, again and again while nobody serves its subject, until the request's time is over."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + request.timeout_s
        failed = 0
        while True:
            try:
                return await self._caller.call(subject, request)
            except RolloutError as error:
                failed += 1
                num_lost = error.num_lost
                left_s = give_up - loop.time()
                retry = error.retries.effect
                pause_s = None if retry is None else retry.pause_s(failed, left_s=left_s)
                if pause_s is None:
                    raise
                log.info("waiting: %s", error.message)
            await asyncio.sleep(pause_s)
            request = msgspec.structs.replace(request, timeout_s=left_s - pause_s, num_lost=num_lost)

    async def tell(self, subject: str, request: Call) -> None:
        await self._caller.tell(subject, request)


class Session(AbstractAsyncContextManager["Session"]):
    """The rollout's side of a session: seeded on entry, closed on exit, every call numbered."""

    def __init__(self, rollout: Rollout, resources: str, *, seeded: bool = True) -> None:
        self._rollout = rollout
        self._resources = resources
        self._seeded = seeded
        self._address: str | None = None
        self._replayable = False
        self._done: list[tuple[ToolCall, str]] = []  # the tool calls so far, and their outputs
        self._calls = 0

    async def __aenter__(self) -> Session:
        rollout = self._rollout
        if self._resources in rollout.stateless:
            return self
        seeded = await self._seed(key="seed")
        self._address = seeded.session
        self._replayable = seeded.replayable
        if self._address is None:
            rollout.stateless.add(self._resources)
        elif rollout.recorder is not None and rollout.recorder.session is not None:
            self._address = rollout.recorder.session
        return self

    async def _seed(self, key: str | None) -> Seeded:
        rollout = self._rollout
        row = rollout.row if self._seeded else None
        timeout_s = self._timeout(rollout.options.tool_timeout_s)
        request = Seed(rollout=rollout.id, timeout_s=timeout_s, row=row)
        subject = subjects.seed(self._resources)
        seeded = await rollout.call(subject, request, Stage.SEED, key=key, in_session=True)
        assert isinstance(seeded, Seeded)
        return seeded

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After these another process goes on with the rollout and, if it has a journal, with its session.
        interrupted = isinstance(error, BusError) or (error is not None and GOES_ON_ELSEWHERE in error.args)
        goes_on = interrupted and self._rollout.recorder is not None
        if self._address is not None and not goes_on:
            await self._rollout.tell(self._address, Close(rollout=self._rollout.id, timeout_s=60.0))

    async def call(self, item: dict[str, Any]) -> dict[str, Any]:
        """Run one `function_call` item; the `function_call_output` item to record. Tool errors are outputs too."""
        return responses.function_call_output(item["call_id"], await self._output_of(item))

    async def _output_of(self, item: dict[str, Any]) -> str:
        name, arguments = item["name"], item.get("arguments")
        try:
            json.loads(arguments)  # type: ignore[arg-type]
        except (TypeError, ValueError, RecursionError) as error:
            return json.dumps({"error": f"Invalid tool call arguments: {error!r}"})
        if name in RESERVED_TOOL_NAMES:
            return json.dumps({"error": f"there is no tool named {name!r}"})
        request = ToolCall(
            rollout=self._rollout.id,
            timeout_s=self._timeout(self._rollout.options.tool_timeout_s),
            number=self._next_number(),
            name=name,
            arguments=str(arguments),
        )
        result = await self._send(request, Stage.TOOL)
        assert isinstance(result, ToolResult)
        if self._replayable:
            self._done.append((request, result.output))
        return result.output

    async def verify(self, response: dict[str, Any], row: bytes | None = None) -> Verdict:
        """The verifier's verdict on the response. A verifier that fails is asked again, since the response is paid for.

        Args:
            row: what the verifier gets as the row, JSON text; default: the rollout's.

        Raises:
            RolloutError: there is no verdict.
        """
        failed = 0
        while True:
            request = Verify(
                rollout=self._rollout.id,
                timeout_s=self._timeout(self._rollout.options.verify_timeout_s),
                number=self._next_number(),
                row=self._rollout.row if row is None else row,
                response=response,
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
        try:
            return await self._send_once(request, stage)
        except RolloutError as error:
            if error.failure_class is not FailureClass.SESSION_LOST:
                raise
            if self._address is None:
                # It keeps state by now; the next attempt seeds it.
                self._rollout.stateless.discard(self._resources)
            if not self._replayable:
                raise
        await self._rebuild()
        return await self._send_once(request, stage)

    async def _send_once(self, request: ToolCall | Verify, stage: Stage) -> Message:
        subject = self._address or subjects.stateless(self._resources)
        in_session = self._address is not None
        return await self._rollout.call(subject, request, stage, key=_key(request), in_session=in_session)

    async def _rebuild(self) -> None:
        """Bring a session of another worker to the state of the one that was lost.

        Raises:
            RolloutError: SESSION_LOST, if it answers the same calls differently.
        """
        address = (await self._seed(key=None)).session
        if address is None:
            raise RolloutError(FailureClass.SESSION_LOST, f"{self._resources} keeps no state any more")
        for request, output in self._done:
            again = await self._rollout.call(address, request, Stage.TOOL)
            if not isinstance(again, ToolResult) or again.output != output:
                text = f"a rebuilt session of {self._resources} answered {request.name} differently"
                raise RolloutError(FailureClass.SESSION_LOST, text, stage=Stage.TOOL)
        self._address = address
        if self._rollout.recorder is not None:
            await self._rollout.recorder.moved(address)

    def _next_number(self) -> int:
        self._calls += 1
        return self._calls

    def _timeout(self, limit_s: float) -> float:
        return min(self._rollout.time_left(), limit_s)


def _digest(params: dict[str, Any]) -> str:
    """Of what a model is told. Items' ids are not: a dialect that has none is given new ones each time."""
    told = [{name: value for name, value in item.items() if name != "id"} for item in params["input"]]
    return hashlib.blake2b(_canonical({**params, "input": told}), digest_size=12).hexdigest()


def _key(request: ToolCall | Verify) -> str:
    """What a journal knows a call by."""
    if isinstance(request, Verify):
        return f"verify {request.number}"
    digest = hashlib.blake2b(request.arguments.encode(), digest_size=8).hexdigest()
    return f"tool {request.number} {request.name} {digest}"


class Agent(Worker):
    """Turns a task into a verified rollout. Most agents define `converse`; one with another order defines `run`."""

    Options = AgentOptions
    max_concurrency = 4096

    def journals(self, rollout: Rollout) -> bool:
        """Whether the rollout's effects are written down, so that it goes on where it was when this process dies.

        It costs one stored message a model call; without it a rollout that is interrupted starts anew.
        """
        return True

    async def run(self, rollout: Rollout) -> Verdict:
        """The whole rollout: seed, converse, verify."""
        async with rollout.session() as session:
            await self.converse(rollout, session)
            if self.options.skip_verification:
                return Verdict(self.options.skip_verification_reward, verification_skipped=True)
            return await session.verify(rollout.response)

    async def converse(self, rollout: Rollout, session: Session) -> None:
        """The conversation of model and tools, without seeding and verifying."""
        not_implemented(self, "converse")


def checked_response(response: Any) -> dict[str, Any]:
    """A model's reply, if it is a Responses object.

    Raises:
        RolloutError: MODEL_FAILED; it is none.
    """
    try:
        return responses.validate_response(response)
    except responses.InvalidReply as error:
        text = f"the model's reply is no Responses object: {error}"
        raise RolloutError(FailureClass.MODEL_FAILED, text, stage=Stage.MODEL) from None
