"""Agent: the loop that turns a task into a verified rollout, as an author writes it.

A loop takes everything that can differ between two runs (model replies, tool results, verdicts) from `Rollout` and
`Session`; these give every effect a key, so that the same loop can be run again over recorded effects.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Protocol, cast

import msgspec
import pydantic

from gymq import responses
from gymq.authoring import Reference, Worker, WorkerOptions
from gymq.bus import BusError
from gymq.data import offered_tools
from gymq.failures import CancelReason, InvalidTask, RolloutError
from gymq.protocol import subjects, tokens
from gymq.protocol.messages import (
    BadMessage,
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
    check_encodable,
)
from gymq.protocol.tokens import encode_json
from gymq.resources import Verdict
from gymq.rpc.conversation import ConversationItems, Held
from gymq.weights.staleness import StalenessLimit

log = logging.getLogger("gymq.agent")

# Names a model cannot call although a session understands them.
RESERVED_TOOL_NAMES = frozenset({"seed", "seed_session", "verify", "close", "aggregate_metrics"})


MAX_TIMINGS = 4096  # calls of a rollout whose times are stored with it


class Caller(Protocol):
    """Sends one request and gives the reply."""

    async def call(self, subject: str, request: Call) -> Message:
        """Return the reply to a request.

        Raises:
            RolloutError: there is no reply.
        """
        ...

    async def send(self, subject: str, request: Call) -> None:
        """Send without waiting for an answer."""
        ...


class Recorder(Protocol):
    """Remembers the effects of a rollout beyond the life of this process."""

    session: str | None  # where the rollout's session was moved to

    async def effect(self, key: str, in_session: bool, perform: Callable[[], Awaitable[Message]]) -> Message: ...

    async def moved(self, session: str) -> None: ...


class AgentOptions(WorkerOptions):
    """Options every agent has."""

    without_meaning: ClassVar = WorkerOptions.without_meaning | {"judge_model_server"}

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
    """The reply of the model to one call."""

    response: responses.Response

    @property
    def output(self) -> list[responses.OutputItem]:
        return self.response["output"]

    @property
    def function_calls(self) -> list[responses.FunctionCall]:
        return responses.function_calls(self.response)

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
        usage = self.response.get("usage")
        if details.get("reason") != "max_output_tokens" or (usage is not None and usage.get("output_tokens")):
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
        stateless: dict[str, Seeded] | None = None,
        staleness: StalenessLimit | None = None,
    ) -> None:
        """Prepare a rollout of one task.

        Args:
            row: JSON text of the task's row.
            deadline: on the event loop's clock, in seconds.
            attempt: number of earlier attempts at this rollout.
            stateless: what stateless resources replied to a seed, shared by rollouts: they need not be seeded again.
            staleness: how many updates behind the policy the rollout may be; None: any number.

        Raises:
            InvalidTask: the row has no usable `responses_create_params`.
        """
        try:
            params = responses.validate_params(_decode_head(row).responses_create_params, tool_names=True)
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
        self.output: list[Mapping[str, Any]] = []
        self.recorder: Recorder | None = None
        self._held: Held | None = None  # of the conversation, by the worker that answered last
        self.timings: list[Timing] = []
        self._began = asyncio.get_running_loop().time()
        self._caller = caller
        self.options = options
        self._deadline = deadline
        self.stateless = {} if stateless is None else stateless
        self._staleness = staleness
        self._policy_versions: list[str] = []
        self._envelope: Mapping[str, Any] | None = None
        self._response: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None
        self._num_asked: dict[str, int] = {}  # by what the model is asked, in short
        self._num_sessions = 0
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._is_responding = False
        self._is_over = False

    def time_left(self) -> float:
        """Return the seconds until the rollout's deadline.

        Raises:
            RolloutError: it has passed.
        """
        left = self.until_deadline()
        if left <= 0:
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, "the deadline of the rollout has passed")
        return left

    def until_deadline(self) -> float:
        """Return the seconds until the rollout's deadline; negative when it has passed."""
        return self._deadline - asyncio.get_running_loop().time()

    def session(self) -> Session:
        """Return the rollout's session in its resources worker; use it with `async with`."""
        if self.options.resources_server is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the agent's option `resources_server` is not set")
        return Session(self, self.options.resources_server.name)

    @property
    def may_call_tools(self) -> bool:
        """Return whether the row offers tools, or its environment may offer them."""
        server = self.options.resources_server
        if self.params.get("tools") is not None or server is None:
            return bool(self.params.get("tools"))
        known = self.stateless.get(server.name)
        return known is None or bool(known.tools)

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """Offer other tools to the model than the row lists; they are stored as the row's."""
        self.params = {**self.params, "tools": tools}
        self.row = offered_tools.row_with(self.row, tools)

    def steps(self, max_steps: int | None) -> Iterator[int]:
        """Count model calls from 1 up to `max_steps` (None or 0: without end)."""
        step = 1
        while not max_steps or step <= max_steps:
            yield step
            step += 1

    async def respond(self) -> Reply:
        """Ask the model to continue the conversation; its output is recorded.

        Raises:
            RolloutError: there is no reply, or another `respond` of the rollout is in flight.
        """
        self._check_not_responding("respond() was called")
        conversation = ConversationItems([*self.input, *self.output], self._held)
        params = {**self.params, "input": conversation}
        self._is_responding = True
        try:
            reply = await self._ask(params, f"generate {len(params['input'])}")
        finally:
            self._is_responding = False
        self._held = conversation.held
        self.output += reply.output
        return reply

    async def ask(self, params: dict[str, Any], *, key: str | None = None) -> Reply:
        """Ask the model anything, in the rollout's name. Its output is not recorded. Several may be in flight.

        Args:
            params: checked parameters of a Responses request, `input` a list of items.
            key: what is asked, in short, for the journal; default: a digest of all of it. Those with the same key are
                numbered in the order in which they start.

        Raises:
            RolloutError: there is no reply.
        """
        return await self._ask(params, f"generate {_digest(params)}" if key is None else f"ask {key}")

    async def _ask(self, params: dict[str, Any], key: str) -> Reply:
        if self.options.model_server is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the agent's option `model_server` is not set")
        self.check_staleness()  # before more is spent on it
        timeout_s = min(self.time_left(), self.options.model_timeout_s)
        request = Generate(rollout=self.id, timeout_s=timeout_s, params=params, session=f"{self.id}/{self.attempt}")
        subject = subjects.model(self.options.model_server.name)
        number = self._num_asked.get(key, 0)
        self._num_asked[key] = number + 1
        try:
            generated = await self.call(subject, request, Stage.MODEL, key=f"#{number} {key}" if number else key)
        except BaseException:
            if self._num_asked[key] == number + 1:
                self._num_asked[key] = number  # nothing was recorded: who asks again asks the same
            raise
        assert isinstance(generated, Generated)
        for version in generated.policy_versions or [""]:
            if version not in self._policy_versions:
                self._policy_versions.append(version)
        response = checked_response(generated.response, params["input"])
        self._usage = responses.add_usage(self._usage, response.get("usage"))
        self._envelope = response
        return Reply(cast(responses.Response, response))

    def _check_not_responding(self, what: str) -> None:
        if self._is_responding:
            text = (
                f"{what} while respond() of the same rollout is in flight, and both append to rollout.output; "
                "ask the model in parallel with rollout.ask(params, key=...), and record the output that you keep"
            )
            raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT)

    @property
    def policy_versions(self) -> list[str]:
        """The policy versions that answered, each once, the first one first; empty if the model has none."""
        return [] if self._policy_versions == [""] else list(self._policy_versions)

    def check_staleness(self) -> None:
        """Check that the policy is not too many updates ahead of the rollout.

        Raises:
            RolloutError: STALE; the policy is ahead by more updates than the rollout allows.
        """
        if self._staleness is not None:
            self._staleness.check(self._policy_versions)

    def record(self, item: Mapping[str, Any]) -> None:
        """Append an item, for example a tool's output, to the conversation.

        Raises:
            RolloutError: a `respond` of the rollout is in flight.
        """
        self._check_not_responding("record() was called")
        self.output.append(item)

    @property
    def response(self) -> dict[str, Any]:
        """Return what is verified and stored: the last reply's envelope around the output and the usage of all turns.

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
    def response(self, response: Mapping[str, Any]) -> None:
        self._response = dict(response)

    @property
    def has_response(self) -> bool:
        return self._response is not None or self._envelope is not None

    async def call(
        self, subject: str, request: Call, stage: Stage, *, key: str | None = None, in_session: bool = False
    ) -> Message:
        """Send a request; the agent's effects all come here.

        Args:
            key: what is asked, in short, for the journal; no other call of the rollout has it. None: the call is not
                recorded.
            in_session: whether the worker answers a repeated call from memory.
        """
        if self._is_over:
            raise RolloutError(FailureClass.AGENT_FAILED, "this attempt at the rollout has ended", stage=Stage.AGENT)
        loop = asyncio.get_running_loop()
        started = loop.time()
        caller = asyncio.current_task()
        assert caller is not None
        self._in_flight.add(caller)
        try:
            if self.recorder is None or key is None:
                return await self._call(subject, request)
            return await self.recorder.effect(key, in_session, lambda: self._call(subject, request))
        except RolloutError as error:
            raise error.at(stage) from None
        finally:
            self._in_flight.discard(caller)
            if not self._is_over and len(self.timings) < MAX_TIMINGS:
                self.timings.append(Timing(stage, started - self._began, loop.time() - started))

    async def _call(self, subject: str, request: Call) -> Message:
        """Send a request, and resend it while no worker serves its subject, until the request times out."""
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

    async def send(self, subject: str, request: Call) -> None:
        await self._caller.send(subject, request)

    def end(self, *, handed_over: bool = False) -> None:
        """Cancel the calls that the loop left in flight, and refuse further ones.

        Args:
            handed_over: whether another process continues the rollout, and needs what its session works on.
        """
        self._is_over = True
        for task in self._in_flight - {asyncio.current_task()}:
            task.cancel(*((CancelReason.HANDED_OVER,) if handed_over else ()))


class Session(AbstractAsyncContextManager["Session"]):
    """The rollout's side of a session: seeded on entry, closed on exit. Its calls run one after the other.

    The number of a call depends on what is called and on how often it was before, not on the calls in between: when the
    loop is run again and calls overtake each other, a call keeps its number, and the worker answers it from memory.
    """

    def __init__(self, rollout: Rollout, resources: str, *, seeded: bool = True) -> None:
        self._rollout = rollout
        self._resources = resources
        self._seeded = seeded
        self._address: str | None = None
        self._replayable = False
        self._done: list[tuple[ToolCall, str]] = []  # the tool calls so far, and their outputs
        self._num_called: dict[bytes, int] = {}  # by digest of what is called
        self._rebuilding = asyncio.Lock()
        self._of_session = ""  # part of the keys of its effects

    async def __aenter__(self) -> Session:
        rollout = self._rollout
        rollout._num_sessions += 1
        self._of_session = f" session {rollout._num_sessions}" if rollout._num_sessions > 1 else ""
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
        """Return what the worker replies to a seed; None if it keeps no state and nothing else is of interest.

        The tools are part of what the model is asked. So a rollout with a journal finds those it had before in it, even
        if the environment offers others by now.
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
        subject = subjects.seed(self._resources)
        seeded = await rollout.call(subject, request, Stage.SEED, key=key, in_session=True)
        assert isinstance(seeded, Seeded)
        return seeded

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Another process continues the rollout and, if it has a journal, its session.
        is_resumed = _handed_over(error) and self._rollout.recorder is not None
        if self._address is not None and not is_resumed:
            await self._rollout.send(self._address, Close(rollout=self._rollout.id, timeout_s=60.0))

    async def call(self, item: responses.FunctionCall) -> responses.FunctionCallOutput:
        """Run one `function_call` item; return the `function_call_output` to record. Tool errors are outputs too."""
        return responses.function_call_output(item["call_id"], await self._output_of(item))

    async def _output_of(self, item: responses.FunctionCall) -> str:
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
            number=self._number(name, str(arguments)),
            name=name,
            arguments=str(arguments),
        )
        result = await self._send(request, Stage.TOOL)
        assert isinstance(result, ToolResult)
        if self._replayable:
            self._done.append((request, result.output))
        return result.output

    async def verify(self, response: Mapping[str, Any], row: bytes | None = None) -> Verdict:
        """Return the verifier's verdict on the response. A failed call is retried, since the response is paid for.

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
                # It keeps state by now; the next attempt seeds it.
                self._rollout.stateless.pop(self._resources, None)
            if not self._replayable or (self._of_session and self._rollout.recorder is not None):
                raise  # a journal has room for the new place of one session
        async with self._rebuilding:
            if self._address == address:
                await self._rebuild()
        return await self._send_once(request, stage)

    async def _send_once(self, request: ToolCall | Verify, stage: Stage) -> Message:
        subject = self._address or subjects.stateless(self._resources)
        in_session = self._address is not None
        return await self._rollout.call(subject, request, stage, key=self._key(request), in_session=in_session)

    async def _rebuild(self) -> None:
        """Bring a session of another worker to the state of the one that was lost.

        Raises:
            RolloutError: SESSION_LOST, if it answers the same calls differently.
        """
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
        """Return what a journal knows a call by."""
        if isinstance(request, Verify):
            return f"verify {request.number}{self._of_session}"
        return f"tool {request.number} {request.name}{self._of_session}"

    def _timeout(self, limit_s: float) -> float:
        return min(self._rollout.time_left(), limit_s)


def _digest(params: dict[str, Any]) -> str:
    """Return a digest of the model's input, without the ids of items: a dialect without ids gets new ones each time."""
    messages = [{name: value for name, value in item.items() if name != "id"} for item in params["input"]]
    return hashlib.blake2b(_canonical({**params, "input": messages}), digest_size=12).hexdigest()


class Agent(Worker):
    """Turns a task into a verified rollout. Most agents define `converse`; one with another order defines `run`."""

    Options = AgentOptions
    max_concurrency = 16_384  # rollouts in flight in one process; most of them wait

    def journals(self, rollout: Rollout) -> bool:
        """Return whether the rollout's effects are recorded, so that it resumes where it was if this process dies.

        It costs one stored message for each model call; without it an interrupted rollout starts over.
        """
        return True

    async def run(self, rollout: Rollout) -> Verdict:
        """Run the whole rollout: seed, converse, verify."""
        async with rollout.session() as session:
            await self.converse(rollout, session)
            if self.options.skip_verification:
                return Verdict(self.options.skip_verification_reward, verification_skipped=True)
            return await session.verify(rollout.response)

    async def converse(self, rollout: Rollout, session: Session) -> None:
        """Hold the conversation of model and tools, without seeding and verifying."""
        raise NotImplementedError


def checked_response(response: Any, conversation: Sequence[object] = ()) -> dict[str, Any]:
    """Return a model's reply, checked to be a Responses object whose tokens fit.

    Args:
        conversation: the items that it answers; a prompt may continue the last call among them.

    Raises:
        RolloutError: MODEL_FAILED; the reply is not a Responses object.
    """
    try:
        checked = responses.validate_response(response)
        tokens.link(checked["output"], tokens.last_tokens(conversation))
    except responses.InvalidReply as error:
        text = f"the model's reply is not a Responses object: {error}"
    except ValueError as error:
        text = f"the model's reply has tokens that do not fit: output{error}"
    else:
        return checked
    raise RolloutError(FailureClass.MODEL_FAILED, text, stage=Stage.MODEL)


async def run_to_verdict(agent: Agent, rollout: Rollout) -> Verdict:
    """Run an agent's loop over a rollout, and end the calls that it leaves in flight.

    Raises:
        RolloutError: the rollout has no valid verdict.
        BusError: the agent's effects cannot be recorded.
        Exception: any other error of the loop.
    """
    try:
        verdict = await agent.run(rollout)
    except BaseException as error:
        rollout.end(handed_over=_handed_over(error))
        cause = _cause(error)
        if cause is error:
            raise
        raise cause from error
    rollout.end()
    if not isinstance(verdict, Verdict) or not math.isfinite(verdict.reward):
        text = f"{agent.name} returned {verdict!r:.200}, no Verdict with a finite reward"
        raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT)
    try:
        check_encodable(verdict.fields, "$.verdict")
    except BadMessage as error:
        text = f"{agent.name} returned a verdict with a field that cannot be encoded: {error}"
        raise RolloutError(FailureClass.AGENT_FAILED, text, stage=Stage.AGENT) from None
    return verdict


def _handed_over(error: BaseException | None) -> bool:
    """Return whether another process continues the rollout that this error ends here."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_handed_over, error.exceptions))
    return isinstance(error, BusError) or (error is not None and CancelReason.HANDED_OVER in error.args)


def _cause(error: BaseException) -> BaseException:
    """Return what a group of errors comes to: the one that decides on the attempt, or else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    deciding = error.subgroup(BusError) or error.subgroup(RolloutError) or error
    return _cause(deciding.exceptions[0])
