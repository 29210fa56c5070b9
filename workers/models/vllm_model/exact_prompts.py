"""Put the prompts of a conversation together of the tokens that were sampled in it. Only `render` does I/O."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gymq.workers.models.vllm_model.continuation import (
    Decode,
    ReplyEnd,
    Shapes,
    ends_itself,
    is_unchanged,
    last_sampled,
    names_system,
    num_ends,
    shortened,
    silent,
    tokens_after,
)

from gymq.errors import GymqError
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS

log = logging.getLogger("gymq.vllm_model")

Messages = Sequence[Mapping[str, Any]]

Render = Callable[[Messages], Awaitable[list[int]]]
"""Returns the tokens that the chat template makes of messages, with the beginning of a reply.

Raises:
    CannotRender: it refuses them.
"""

_TOKEN_FIELDS = (*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS)


class CannotRender(GymqError):
    """The chat template does not take some messages."""


class ExactPrompts:
    """Continues the tokens of earlier turns with what a template makes of the new messages."""

    def __init__(self, ends_of_turn: frozenset[int], decode: Decode) -> None:
        """
        Args:
            ends_of_turn: tokens that end a turn, and with it the sampling.
            decode: the text of tokens, with the special ones.
        """
        self._ends_of_turn = ends_of_turn
        self._decode = decode
        self._reported_breaks = False

    async def prompt(self, messages: Messages, render: Render, shapes: Shapes, num_known: int = 0) -> list[int]:
        """Return the prompt of a chat.

        Args:
            shapes: of conversations with this template and these tools.
            num_known: leading messages that are those of an earlier call, whose reply is the next one.

        Raises:
            CannotRender: the template refuses the messages.
        """
        prompt = None
        if num_known and messages[num_known].get("generation_token_ids"):
            prompt = await self._after_known(shapes, messages, num_known, render)
        if prompt is None:
            prompt = await self.continued(messages, render)
        return await render(plain(messages)) if prompt is None else prompt

    async def continued(self, messages: Messages, render: Render) -> list[int] | None:
        """Return the prompt that continues the last reply with sampled tokens; None if all has to be rendered.

        Raises:
            CannotRender: the template refuses the messages.
        """
        last = last_sampled(messages)
        if last is None:
            return None
        spoken = _silent(messages, last)
        before, rendered = await render(spoken[:last]), await render(spoken)
        new = None
        if is_unchanged(messages, before, rendered, ends_of_turn=self._ends_of_turn, decode=self._decode):
            end = await self._reply_end(spoken, last, before, render)
            new = end and tokens_after(messages[last], rendered, end, self._ends_of_turn)
        if new is not None:
            return _known(messages[last]) + new
        if not self._reported_breaks:
            log.warning("a chat was rendered again: its history changed, or the template does not end turns")
            self._reported_breaks = True
        return None

    async def _after_known(
        self, shapes: Shapes, messages: Messages, num_known: int, render: Render
    ) -> list[int] | None:
        """Return the prompt that continues the reply to the known messages; None if all has to be rendered."""
        if names_system(messages[num_known + 1 :]):
            return None  # it may be moved to the front
        reply = messages[num_known]
        shape, short, place = shortened(messages, num_known)
        end = shapes.get(shape)
        if end is not None:
            new = tokens_after(reply, await render(_silent(short, place)), end, self._ends_of_turn)
            return None if new is None else _known(reply) + new
        end, new = await self._new(reply, messages, num_known, render)
        if shape not in shapes:
            try:
                end, same = await self._new(reply, short, place, render)
                shapes.put(shape, end if new is not None and new == same else None)
            except CannotRender:
                shapes.put(shape, None)
        return None if new is None else _known(reply) + new

    async def _new(
        self, reply: Mapping[str, Any], messages: Messages, place: int, render: Render
    ) -> tuple[ReplyEnd | None, list[int] | None]:
        """Return where the template ends the reply at a place among messages, and the tokens after it."""
        spoken = _silent(messages, place)
        end = await self._reply_end(spoken, place, await render(spoken[:place]), render)
        return end, end and tokens_after(reply, await render(spoken), end, self._ends_of_turn)

    async def _reply_end(self, spoken: Messages, place: int, before: list[int], render: Render) -> ReplyEnd | None:
        """Return where the template ends the reply at a place; None if it does not.

        Args:
            before: the tokens of the messages before the reply.
        """
        _, short, reply = shortened(spoken, place)
        short = list(map(silent, short[: reply + 2]))
        try:
            first, after, followed = [await render(short[:length]) for length in (reply, reply + 1, reply + 2)]
            is_own = ends_itself(first, after, followed, self._ends_of_turn)
        except CannotRender:  # the template begins no reply after another one
            is_own = True
        return None if is_own is None else ReplyEnd(num_ends(before, self._ends_of_turn), is_own)


def plain(messages: Messages) -> list[dict[str, Any]]:
    """Return messages as a template knows them: without tokens."""
    return [{name: part for name, part in one.items() if name not in _TOKEN_FIELDS} for one in messages]


def _silent(messages: Messages, place: int) -> list[dict[str, Any]]:
    """Return plain messages, of which the reply at a place is `silent`."""
    without_tokens = plain(messages)
    without_tokens[place] = silent(without_tokens[place])
    return without_tokens


def _known(reply: Mapping[str, Any]) -> list[int]:
    return [*reply["prompt_token_ids"], *reply["generation_token_ids"]]
