"""The prompt of a later turn, made of the very tokens of the earlier ones. Nothing here does I/O.

A chat template applied to a conversation gives text. Tokenized again, that text may give other tokens than were
sampled, and what was sampled would be no prefix of the next prompt: training on such a chain goes wrong unseen. So a
later prompt is put together: what the engine was given and what it sampled in the last turn, as they were, then from
the template only what is new in the conversation.

Where the earlier messages are known to be those of the last call, a template need not render them again to say what is
new: after a short conversation of the same shape it says the same. That it does is tried once for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Decode = Callable[[Sequence[int]], str]

MAX_SHAPES = 1024
"""Shapes of conversations that are remembered of a template."""

_LEADING_ROLES = ("system", "developer")


def last_sampled(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the index of the last message that has its sampled tokens; None if there is none."""
    for index in reversed(range(len(messages))):
        if messages[index].get("generation_token_ids"):
            return index
    return None


def continued_prompt(
    messages: Sequence[Mapping[str, Any]],
    rendered: Sequence[int],
    rendered_so_far: Sequence[int],
    *,
    ends_of_turn: Collection[int],
    decode: Decode,
) -> list[int] | None:
    """Return the prompt for `messages`; None if the template has to be trusted with all of it.

    This is the case when nothing was sampled yet, when the agent changed earlier turns, or when the template
    does not end turns with its own tokens.

    Args:
        rendered: all messages as rendered by the template, with the beginning of a reply.
        rendered_so_far: the messages up to the last sampled one, rendered.
        ends_of_turn: tokens that end a turn, and with it the sampling.
        decode: the text of tokens.
    """
    last = last_sampled(messages)
    if last is None:
        return None
    prompt, sampled = _tokens(messages[last])
    known = prompt + sampled
    is_closed = sampled[-1] in ends_of_turn  # not when the reply was cut off
    said = _turns(known, ends_of_turn)
    template = _turns(rendered_so_far, ends_of_turn)
    num_turns = len(template) - 1  # the part after the last end is not a turn
    if num_turns == 0 or len(said) != num_turns + is_closed:
        return None
    samples = _samples(messages[: last + 1], known)
    for (start, turn), (_, expected) in zip(said[:num_turns], template, strict=False):
        is_sampled = any(begin < start + len(turn) and start < end for begin, end in samples)
        if not (is_sampled or turn == expected or decode(turn) == decode(expected)):
            return None
    new = _new_tokens(rendered, num_turns, is_closed, ends_of_turn)
    return None if new is None else known + new


def prompt_after(
    reply: Mapping[str, Any],
    rendered: Sequence[int],
    rendered_so_far: Sequence[int],
    *,
    ends_of_turn: Collection[int],
) -> list[int] | None:
    """Return the prompt that continues a reply to messages that are still the same; None as in `continued_prompt`.

    Args:
        rendered: a conversation that ends with the reply and the messages after it, as rendered by the template, with
            the beginning of a reply. What comes before the reply may differ.
        rendered_so_far: the same conversation up to the reply.
        ends_of_turn: tokens that end a turn, and with it the sampling.
    """
    prompt, sampled = _tokens(reply)
    num_turns = sum(token in ends_of_turn for token in rendered_so_far)
    if num_turns == 0:
        return None
    new = _new_tokens(rendered, num_turns, sampled[-1] in ends_of_turn, ends_of_turn)
    return None if new is None else prompt + sampled + new


def _new_tokens(
    rendered: Sequence[int], num_turns: int, is_closed: bool, ends_of_turn: Collection[int]
) -> list[int] | None:
    """Return the tokens after so many turns; those of the last turn's end too, unless it was sampled."""
    ends = [index for index, token in enumerate(rendered) if token in ends_of_turn]
    if len(ends) < num_turns:
        return None
    return list(rendered[ends[num_turns - 1] + is_closed :])


class Shapes:
    """Which conversations a template continues in the same way after a shorter one."""

    def __init__(self) -> None:
        self._is_same: dict[object, bool] = {}

    def get(self, shape: object) -> bool | None:
        """Return whether a shape was found to be continued in the same way; None: it was not tried."""
        return self._is_same.get(shape)

    def put(self, shape: object, is_same: bool) -> None:
        if len(self._is_same) >= MAX_SHAPES:
            self._is_same.clear()
        self._is_same[shape] = is_same


def shortened(messages: Sequence[Mapping[str, Any]], num_known: int) -> tuple[object, list[Mapping[str, Any]], int]:
    """Return the shape of a conversation, a short one of this shape, and the index of the reply in the short one.

    Args:
        num_known: messages before the last reply.
    """
    roles = []
    for message in messages[:num_known]:
        roles.append(message["role"])
        if message["role"] not in _LEADING_ROLES:
            break
    new = messages[num_known:]
    shape = (tuple(roles), tuple(map(_shape, new)))
    return shape, [*({"role": role, "content": "-"} for role in roles), *new], len(roles)


def _shape(message: Mapping[str, Any]) -> object:
    content = message.get("content")
    kind = (type(content), bool(content) if isinstance(content, str) else len(content or ()))
    members = frozenset(name for name, value in message.items() if value is not None)
    return message["role"], kind, len(message.get("tool_calls") or ()), members


def _tokens(message: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    return list(message["prompt_token_ids"]), list(message["generation_token_ids"])


def _turns(tokens: Sequence[int], ends_of_turn: Collection[int]) -> list[tuple[int, list[int]]]:
    """Return the pieces between the tokens that end a turn, each with the index it begins at."""
    turns = []
    start = 0
    for index, token in enumerate(tokens):
        if token in ends_of_turn:
            turns.append((start, list(tokens[start:index])))
            start = index + 1
    return [*turns, (start, list(tokens[start:]))]


def _samples(messages: Sequence[Mapping[str, Any]], known: list[int]) -> list[tuple[int, int]]:
    """From where to where the known tokens were sampled, as far as the messages can say it."""
    ranges = []
    for message in messages:
        if message.get("generation_token_ids"):
            prompt, sampled = _tokens(message)
            end = len(prompt) + len(sampled)
            if known[:end] == prompt + sampled:
                ranges.append((len(prompt), end))
    return ranges
