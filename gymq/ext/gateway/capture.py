"""The model calls that a program makes for a rollout: asked in its name, kept, and made into one conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from gymq import responses
from gymq.agent import Rollout
from gymq.ext.gateway.chains import build_chains
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, Stage
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.sandbox import ProgramResult

log = logging.getLogger("gymq.agent")

# Parameters of the row that win over a program's own: it decides what is asked, the row how the policy is sampled.
OF_THE_ROW = ("model", "temperature", "top_p", "max_output_tokens", "reasoning", "metadata")

# What a program says of itself and its session. The policy does not see it, and it differs each time that the program
# is started, so that a replay would not find its calls.
OF_THE_PROGRAM = ("user", "prompt_cache_key", "safety_identifier", "store", "service_tier")

# What is left of a rollout's time for the end of its program, so that it can be reported.
_TO_END_S = 5.0

Item = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class CapturedCall:
    """One model call: the conversation it was made with, and what the model said.

    Attributes:
        items: of the conversation, shared with the calls that continue it; they begin with the input of this one.
        num_input: how many of them are its input.
        has_tools: whether the program offered any.
        overflowed: it said nothing, since the conversation does not fit into its context.
    """

    items: list[Item]
    num_input: int
    output: list[Item]
    has_tools: bool = False
    overflowed: bool = False

    @property
    def input(self) -> list[Item]:
        return self.items[: self.num_input]

    def since_last_reply(self) -> list[Item]:
        """Return the items of the input after the last one that a model generated; none if it holds no such item."""
        for index in reversed(range(self.num_input)):
            if responses.is_generated(self.items[index]):
                return self.items[index + 1 : self.num_input]
        return []


class _Thread:
    """Calls whose inputs continue one another item by item, so that each item is kept once."""

    def __init__(self) -> None:
        self.calls: list[CapturedCall] = []
        self.items: list[Item] = []  # the input of the last call

    def is_continued_by(self, items: list[Item]) -> bool:
        return len(items) > len(self.items) and all(map(responses.asks_the_same, self.items, items))


@dataclass(frozen=True)
class Conversation:
    """The model calls of a rollout as one conversation.

    Attributes:
        prompt: items before the model's first reply.
        output: replies and the items between them, in order; sampled tokens are on the replies' last items.
        branches: further conversations that do not continue this one, such as those of sub-agents, outputs only.
        num_side_calls: calls that are in no conversation, such as for a title or a summary: those without tools, of a
            program that offers tools.
        notes: the accounting of `build_chains`; None without tokens.
        masked: whether the tokens are not safe to train on.
        last_output: of a program that a limit ended; None for others.
    """

    prompt: list[Item]
    output: list[Item]
    branches: list[list[Item]]
    num_side_calls: int
    notes: dict[str, Any] | None
    masked: bool
    last_output: str | None

    def fields(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a result row beside the response.

        Args:
            params: create parameters of the rollout.
        """
        fields: dict[str, Any] = {"responses_create_params": {**params, "input": self.prompt}}
        fields |= {"branches": self.branches} if self.branches else {}
        fields |= {"side_calls": self.num_side_calls} if self.num_side_calls else {}
        fields |= {} if self.last_output is None else {"last_output": self.last_output}
        return fields | ({"_ng_token_capture": self.notes} if self.notes is not None else {})


class Capture:
    """Asks the model for one rollout; `ask` is what a gateway admits."""

    def __init__(self, rollout: Rollout, max_calls: int | None = None) -> None:
        """Prepare the capture of one rollout's model calls.

        Args:
            max_calls: limit on calls; further ones are refused with an error that the program sees.
        """
        self.calls: list[CapturedCall] = []
        self.limit_reached = False
        self._threads: dict[bool, list[_Thread]] = {True: [], False: []}  # of the calls with tools, and without
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
                asked = {name: value for name, value in params.items() if name not in OF_THE_PROGRAM}
                reply = await self._rollout.ask({**asked, **self._of_the_row})
            except Exception as error:
                self.fail(error)
                raise
            response = cast(dict[str, Any], reply.response)
            self._keep(params["input"], response["output"], bool(params.get("tools")), reply.overflowed)
            return response

    def _keep(self, items: list[Item], output: list[Item], has_tools: bool, overflowed: bool) -> None:
        """Keep a call in the longest thread that its input continues, or in a new one."""
        threads = self._threads[has_tools]
        continued = [thread for thread in threads if thread.is_continued_by(items)]
        if not continued:
            threads.append(_Thread())
        thread = max(continued, key=lambda one: len(one.items), default=threads[-1])
        thread.items += items[len(thread.items) :]
        call = CapturedCall(thread.items, len(items), output, has_tools, overflowed)
        thread.calls.append(call)
        self.calls.append(call)

    @property
    def context_is_full(self) -> bool:
        """Return whether the program's last conversation did not fit into the model's context."""
        return bool(self.calls) and self.calls[-1].overflowed

    def fail(self, reason: Exception) -> None:
        """End `watch`: the rollout has no result, whatever the program makes of it. The first reason counts."""
        if not self._failed.done():
            self._failed.set_result(reason)

    def time_for_program(self, limit_s: float | None = None) -> float:
        """Return the seconds that a program may take: its limit or, if that is less, what the rollout has left.

        Raises:
            RolloutError: nothing is left.
        """
        left_s = self._rollout.time_left()
        left_s -= min(_TO_END_S, left_s / 2)
        return left_s if limit_s is None else min(limit_s, left_s)

    async def watch(self, program: Coroutine[Any, Any, T]) -> T:
        """Run a program to its end, or until `fail`, as when the model cannot be asked; then it is cancelled.

        How a program of `Runtime.run` ended is part of the failure if it never asked the model, and in the log if it
        was not with status 0.

        Raises:
            RolloutError: it took all the time that the rollout had left; the message has its last output.
            Exception: the reason of `fail`; a program could take it for the end of its task.
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
                if ended.limit == "time" and self._rollout.until_deadline() <= _TO_END_S:
                    text = f"the program {ended.report}"
                    raise RolloutError(FailureClass.DEADLINE_EXCEEDED, text, stage=Stage.AGENT)
            return ended
        finally:
            running.cancel()
            await asyncio.wait([running])

    def conversation(self) -> Conversation:
        """Return the calls as one conversation.

        It is made of the calls whose prompts continue one another: token by token, or item by item without tokens.

        Raises:
            RolloutError: AGENT_FAILED, no call was made.
        """
        if not self.calls:
            how = "ended without asking the model"
            if self._ended is not None:
                how = f"{self._ended.how} without asking the model: {self._ended.last_words or 'it printed nothing'}"
            raise RolloutError(FailureClass.AGENT_FAILED, f"the program {how}", stage=Stage.AGENT)
        calls = [call for call in self.calls if call.has_tools] or self.calls
        entries = [_entry(number, call) for number, call in enumerate(calls) if not call.overflowed]
        with_tokens = [entry for entry in entries if entry is not None]
        notes, masked = None, False
        if with_tokens:
            built = build_chains(with_tokens)
            chains = [[calls[int(link.call.model_call_id)] for link in chain.links] for chain in built.chains]
            notes, masked = built.notes, built.mask_sample(capture_complete=len(with_tokens) == len(entries))
        else:
            chains = [thread.calls for thread in self._threads[calls[0].has_tools]]
        longest = max(chains, key=_length, default=calls)
        branches = [_joined(chain) for chain in chains if chain is not longest]
        num_side_calls = len(self.calls) - len(calls)
        cut = self._ended if self._ended is not None and self._ended.limit is not None else None
        last_output = None if cut is None else cut.last_words
        return Conversation(longest[0].input, _joined(longest), branches, num_side_calls, notes, masked, last_output)


def _length(chain: list[CapturedCall]) -> tuple[int, int]:
    return sum(len(item.get("generation_token_ids") or ()) for call in chain for item in call.output), len(chain)


def _entry(number: int, call: CapturedCall) -> dict[str, Any] | None:
    """Return a call in the form of `build_chains`; None if no tokens came with it."""
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


def _joined(calls: list[CapturedCall]) -> list[Item]:
    """Return the replies in order, each after the items that its call added since the previous reply."""
    output = list(calls[0].output)
    for call in calls[1:]:
        output += call.since_last_reply() + call.output
    return output
