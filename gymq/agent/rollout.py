"""A rollout in progress: the interface for the loop of an agent, and the conversation with the model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from gymq import responses
from gymq.agent.calls import Caller, RolloutCalls
from gymq.agent.options import AgentOptions
from gymq.agent.session import Session
from gymq.failures import InvalidTask, RolloutError
from gymq.processes.failing import OnFailure
from gymq.protocol import subjects, tokens
from gymq.protocol.conversation import ConversationItems, HeldConversation
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import FailureClass, Generate, Generated, Seeded, Stage
from gymq.protocol.tokens import encode_json


class _RowHead(msgspec.Struct):
    responses_create_params: dict[str, Any]


_decode_head = msgspec.json.Decoder(_RowHead).decode
_canonical = msgspec.json.Encoder(enc_hook=encode_json, order="sorted").encode


class StalenessCheck(Protocol):
    """Limits how many updates the policy may be ahead of a rollout."""

    def check(self, policy_versions: Sequence[str]) -> None:
        """Check the versions that answered so far, in order.

        Raises:
            RolloutError: STALE; the first version is too many updates behind the newest, or an update that makes
                rollouts start over came after it.
        """
        ...

    async def until_free(self, patience_s: float) -> None:
        """Wait while an update holds back new rollouts, for at most `patience_s` seconds."""
        ...


@dataclass(frozen=True)
class Reply:
    """The reply of the model to one call.

    Attributes:
        response: the whole Responses object, checked.
    """

    response: responses.Response

    @property
    def output(self) -> list[responses.OutputItem]:
        """The items of the reply, in order."""
        return self.response["output"]

    @property
    def function_calls(self) -> list[responses.FunctionCall]:
        """The calls in the reply, in order; `arguments` is text as the model wrote it."""
        return responses.function_calls(self.response)

    @property
    def has_message(self) -> bool:
        """Whether the reply has a message to the user."""
        return any(item.get("type") == "message" and item.get("role") == "assistant" for item in self.output)

    @property
    def incomplete(self) -> bool:
        """The engine cut the reply short; calls in it must not be run."""
        return self.response.get("incomplete_details") is not None

    @property
    def overflowed(self) -> bool:
        """The conversation no longer fits into the model's context: the reply was cut short before its first token."""
        return responses.overflowed(self.response)


class Rollout(RolloutCalls):
    """One rollout in progress: the interface for an agent's loop."""

    def __init__(
        self,
        caller: Caller,
        *,
        rollout_id: str,
        row: bytes,
        options: AgentOptions,
        deadline: float,
        attempt: int = 0,
        num_lost: int = 0,
        stateless: dict[str, Seeded] | None = None,
        staleness: StalenessCheck | None = None,
    ) -> None:
        """Prepare a rollout of one task.

        Args:
            row: JSON text of the task's row.
            deadline: on the event loop's clock, in seconds.
            attempt: number of earlier attempts at this rollout.
            num_lost: how many of them lost their session during a call.
            stateless: what stateless resources replied to a seed, shared by rollouts: they need not be seeded again.
            staleness: how many updates behind the policy the rollout may be; None: any number.

        Raises:
            InvalidTask: the row has no usable `responses_create_params`.
        """
        try:
            params = responses.row_params(_decode_head(row).responses_create_params)
        except UNDECODABLE as error:
            raise InvalidTask(f"row: {error}") from None
        except responses.InvalidRequest as error:
            raise InvalidTask(f"responses_create_params.{error}") from None
        super().__init__(
            caller,
            rollout_id=rollout_id,
            row=row,
            params=params,
            options=options,
            deadline=deadline,
            num_lost=num_lost,
            stateless=stateless,
        )
        self.attempt = attempt
        self.has_begun = False  # the model was asked, or an earlier process recorded effects
        prompt = params["input"]
        self.input: list[responses.Item] = [responses.user_message(prompt)] if isinstance(prompt, str) else prompt
        self.output: list[Mapping[str, Any]] = []
        self._held: HeldConversation | None = None  # of the conversation, by the worker that answered last
        self._staleness = staleness
        self._policy_versions: list[str] = []
        self._envelope: Mapping[str, Any] | None = None
        self._response: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None
        self._num_asked: dict[str, int] = {}  # by key
        self._is_responding = False

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
        seeded = self.stateless.get(server.name)
        return seeded is None or bool(seeded.tools)

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
        """Ask the model with any parameters. Its output is not recorded; several calls may be in flight.

        Args:
            params: checked parameters of a Responses request, `input` a list of items.
            key: identifies the call in the journal; default: a digest of the parameters. Calls with the same key are
                numbered in the order in which they start.

        Raises:
            RolloutError: there is no reply.
        """
        return await self._ask(params, f"generate {_digest(params)}" if key is None else f"ask {key}")

    def _free_number(self, key: str, number: int) -> None:
        """Let the repetition of a call have its number, since nothing was recorded."""
        if self._num_asked[key] == number + 1:
            self._num_asked[key] = number

    async def _ask(self, params: dict[str, Any], key: str) -> Reply:
        if self.options.model_server is None:
            raise RolloutError(FailureClass.AGENT_FAILED, "the agent's option `model_server` is not set")
        if self._staleness is not None and not self.has_begun:
            await self._staleness.until_free(self.time_left())
        self.has_begun = True
        self.check_staleness()
        timeout_s = min(self.time_left(), self.options.model_timeout_s)
        request = Generate(rollout=self.id, timeout_s=timeout_s, params=params, session=f"{self.id}/{self.attempt}")
        subject = subjects.MODEL.of(self.options.model_server.name)
        number = self._num_asked.get(key, 0)
        self._num_asked[key] = number + 1
        with OnFailure(partial(self._free_number, key, number)):
            generated = await self.call(subject, request, Stage.MODEL, key=f"#{number} {key}" if number else key)
        assert isinstance(generated, Generated)
        for version in generated.policy_versions or [""]:
            if version not in self._policy_versions:
                self._policy_versions.append(version)
        self.check_staleness()  # at the end, another update may hide that the rollout crossed this one
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
        """The policy versions that answered, in order, without repetitions; empty if the model has no versions."""
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
        """Return the response to verify and store: the last reply with the output and the usage of all turns.

        An agent may set it to another one.
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
        """Whether there is a response to verify."""
        return self._response is not None or self._envelope is not None


def _digest(params: dict[str, Any]) -> str:
    """Return a digest of the parameters without ids of items, which are new each time in dialects without ids."""
    messages = [{name: value for name, value in item.items() if name != "id"} for item in params["input"]]
    return hashlib.blake2b(_canonical({**params, "input": messages}), digest_size=12).hexdigest()


def checked_response(response: Any, conversation: Sequence[object] = ()) -> dict[str, Any]:
    """Return a model's reply, checked to be a Responses object whose tokens fit.

    Args:
        conversation: the items before the reply, whose last call its prompt may continue.

    Raises:
        RolloutError: MODEL_FAILED; the reply is not a Responses object.
    """
    try:
        checked = responses.validate_response(response)
        tokens.link(checked["output"], conversation)
    except responses.InvalidReply as error:
        text = f"the model's reply is not a Responses object: {error}"
    except ValueError as error:
        text = f"the model's reply has tokens that do not fit: output{error}"
    else:
        return checked
    raise RolloutError(FailureClass.MODEL_FAILED, text, stage=Stage.MODEL)
