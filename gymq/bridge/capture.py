"""The model calls that a program makes for a rollout: asked in its name, kept, and made into one conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from gymq import responses
from gymq.agent import Rollout
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, Stage
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.sandbox import ProgramResult

log = logging.getLogger("gymq.agent")

# Parameters of the row that win over a program's own: it decides what is asked, the row how the policy is sampled.
OF_THE_ROW = ("model", "temperature", "top_p", "max_output_tokens", "reasoning", "metadata")

Item = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class CapturedCall:
    """One model call: the conversation it was made with, and what the model said.

    Attributes:
        overflowed: it said nothing, since the conversation does not fit into its context.
    """

    input: list[Item]
    output: list[Item]
    overflowed: bool = False


@dataclass(frozen=True)
class Conversation:
    """The model calls of a rollout as one conversation.

    Attributes:
        prompt: items before the model's first reply.
        output: replies and the items between them, in order; sampled tokens are on the replies' last items.
        branches: further conversations that do not continue this one, outputs only; they are recognised only by tokens.
        notes: the accounting of `responses.build_chains`; None without tokens.
        masked: whether the tokens are not safe to train on.
    """

    prompt: list[Item]
    output: list[Item]
    branches: list[list[Item]]
    notes: dict[str, Any] | None
    masked: bool

    def fields(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a result row beside the response.

        Args:
            params: create parameters of the rollout.
        """
        told: dict[str, Any] = {"responses_create_params": {**params, "input": self.prompt}}
        told |= {"branches": self.branches} if self.branches else {}
        return told | ({"_ng_token_capture": self.notes} if self.notes is not None else {})


class Capture:
    """Asks the model for one rollout; `ask` is what a gateway admits."""

    def __init__(self, rollout: Rollout, max_calls: int | None = None) -> None:
        """Prepare the capture of one rollout's model calls.

        Args:
            max_calls: limit on calls; further ones are refused with an error that the program sees.
        """
        self.calls: list[CapturedCall] = []
        self.limit_reached = False
        self._ended: ProgramResult | None = None
        self._rollout = rollout
        self._of_the_row = {name: value for name in OF_THE_ROW if (value := rollout.params.get(name)) is not None}
        self._max_calls = max_calls
        self._turn = asyncio.Lock()  # a replay finds calls in the same order only if they are made one by one
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def ask(self, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the rollout's model; any error that prevents an answer also ends `watch`.

        Raises:
            RolloutError: there is no answer.
        """
        async with self._turn:
            if self._max_calls is not None and len(self.calls) >= self._max_calls:
                self.limit_reached = True
                raise RolloutError(FailureClass.BAD_REQUEST, f"all {self._max_calls} model calls are used up")
            try:
                reply = await self._rollout.ask({**params, **self._of_the_row})
            except Exception as error:
                self.fail(error)
                raise
            response = cast(dict[str, Any], reply.response)
            self.calls.append(CapturedCall(list(params["input"]), response["output"], reply.overflowed))
            return response

    @property
    def context_is_full(self) -> bool:
        """Return whether the program's last conversation did not fit into the model's context."""
        return bool(self.calls) and self.calls[-1].overflowed

    def fail(self, reason: Exception) -> None:
        """End `watch`: the rollout has no result, whatever the program makes of it. The first reason counts."""
        if not self._failed.done():
            self._failed.set_result(reason)

    async def watch(self, program: Coroutine[Any, Any, T]) -> T:
        """Run a program to its end, or until `fail`, as when the model cannot be asked; then it is cancelled.

        How a program of `Runtime.run` ended is part of the failure if it never asked the model, and in the log if it
        was not with status 0.

        Raises:
            Exception: the reason; a program could take it for the end of its task.
        """
        running = asyncio.ensure_future(program)
        ends: set[asyncio.Future[Any]] = {running, self._failed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                raise self._failed.result()
            ended = running.result()
            if isinstance(ended, ProgramResult):
                self._ended = ended
                if ended.exit_status != 0:
                    log.warning("the program of %s %s", self._rollout.id, ended.report)
            return ended
        finally:
            running.cancel()
            await asyncio.wait([running])

    def conversation(self) -> Conversation:
        """Return the calls as one conversation.

        With tokens, these are the calls whose prompts continue one another; without, all calls.

        Raises:
            RolloutError: AGENT_FAILED, no call was made.
        """
        if not self.calls:
            how = "ended without asking the model"
            if self._ended is not None:
                how = f"{self._ended.how} without asking the model: {self._ended.last_words or 'it printed nothing'}"
            raise RolloutError(FailureClass.AGENT_FAILED, f"the program {how}", stage=Stage.AGENT)
        entries = [_entry(number, call) for number, call in enumerate(self.calls) if not call.overflowed]
        with_tokens = [entry for entry in entries if entry is not None]
        if not with_tokens:
            return Conversation(self.calls[0].input, _joined(self.calls), [], None, masked=False)
        built = responses.build_chains(with_tokens)
        chains = [[self.calls[int(link.call.model_call_id)] for link in chain.links] for chain in built.chains]
        longest = max(chains, key=lambda chain: sum(map(_num_generated, chain)), default=self.calls)
        branches = [_joined(chain) for chain in chains if chain is not longest]
        masked = built.mask_sample(capture_complete=len(with_tokens) == len(entries))
        return Conversation(longest[0].input, _joined(longest), branches, built.notes, masked)


def _entry(number: int, call: CapturedCall) -> dict[str, Any] | None:
    """Return a call in the form of `responses.build_chains`; None if no tokens came with it."""
    for index, item in enumerate(call.output):
        if all(item.get(name) is not None for name in TOKEN_FIELDS):
            return {
                "rollout_id": "rollout",
                "model_call_id": f"{number:06d}",
                "created_at": float(number),
                "output_items": call.output,
                "token_item_index": index,
                **{name: item[name] for name in TOKEN_FIELDS},
            }
    return None


def _num_generated(call: CapturedCall) -> int:
    return sum(len(item.get("generation_token_ids") or ()) for item in call.output)


def _joined(calls: list[CapturedCall]) -> list[Item]:
    """Return the replies in order, each after the items that its call added since the previous reply."""
    output = list(calls[0].output)
    for call in calls[1:]:
        output += _since_last_reply(call.input) + call.output
    return output


def _since_last_reply(items: list[Item]) -> list[Item]:
    """Return the items after the last one that a model generated."""
    _, behind = responses.split_at_first_generated(items)
    since: list[Item] = []
    for item in behind:
        _, generated = responses.split_at_first_generated([item])
        since = [] if generated else [*since, item]
    return since
