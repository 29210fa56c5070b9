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
from typing import Any, NamedTuple

Decode = Callable[[Sequence[int]], str]

MAX_SHAPES = 1024
"""Shapes of conversations that are remembered of a template."""

_LEADING_ROLES = ("system", "developer")
_REASONING = ("reasoning", "reasoning_content")


def last_sampled(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the index of the last message that has its sampled tokens; None if there is none."""
    for index in reversed(range(len(messages))):
        if messages[index].get("generation_token_ids"):
            return index
    return None


def silent(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of the same form that says nothing, so that none of its words looks like the end of a turn.

    It has no reasoning, which templates leave out of a reply as soon as a user has answered it.
    """
    said = {name: part for name, part in message.items() if name not in _REASONING}
    if not said.get("tool_calls"):
        return {**said, "content": "-"}
    calls = [{**call, "function": {**call["function"], "arguments": "{}"}} for call in said["tool_calls"]]
    return {**said, "content": "-" if said.get("content") else said.get("content"), "tool_calls": calls}


class ReplyEnd(NamedTuple):
    """Where a template ends a reply."""

    num_before: int  # tokens that end a turn, before it
    is_own: bool  # it belongs to the reply; otherwise it begins the next message, as a role does in templates of GLM


def num_ends(tokens: Sequence[int], ends_of_turn: Collection[int]) -> int:
    """Return how many of the tokens end a turn, and with it the sampling."""
    return len(_places(tokens, ends_of_turn))


def ends_itself(
    before: Sequence[int], after: Sequence[int], followed: Sequence[int], ends_of_turn: Collection[int]
) -> bool | None:
    """Return whether the template ends a reply itself, not by the next message; None if it does neither.

    Args:
        before: the messages before the reply, as rendered by the template, with the beginning of a reply.
        after: the same with the reply, which is `silent`.
        followed: the same with the next message, which is silent too.
        ends_of_turn: tokens that end a turn, and with it the sampling.
    """
    num_before = num_ends(before, ends_of_turn)
    if num_ends(after, ends_of_turn) > num_before:
        return True
    places = _places(followed, ends_of_turn)
    begins_next = len(places) > num_before and followed[: places[num_before]] == after[: places[num_before]]
    return False if begins_next else None


def tokens_after(
    reply: Mapping[str, Any], rendered: Sequence[int], end: ReplyEnd, ends_of_turn: Collection[int]
) -> list[int] | None:
    """Return what follows the sampled tokens of a reply; None if the template does not end turns.

    Args:
        rendered: a conversation with the reply, which is `silent`, and the messages after it, as rendered by the
            template, with the beginning of a reply. What comes before the reply may differ.
    """
    places = _places(rendered, ends_of_turn)
    if len(places) <= end.num_before:
        return None
    place, last = places[end.num_before], reply["generation_token_ids"][-1]
    # A reply that was cut off has no end yet.
    was_sampled = last in ends_of_turn if end.is_own else last == rendered[place]
    return list(rendered[place + was_sampled :])


def is_unchanged(
    messages: Sequence[Mapping[str, Any]],
    before: Sequence[int],
    rendered: Sequence[int],
    *,
    ends_of_turn: Collection[int],
    decode: Decode,
) -> bool:
    """Return whether the template says what the last sampled message was sampled after.

    It does not if the agent changed earlier turns, or if a later message of the system is moved to the front, as vLLM
    does in conversations with messages of a developer.

    Args:
        before: the messages before the last sampled one, as rendered by the template, with the beginning of a reply.
        rendered: all messages, likewise.
        ends_of_turn: tokens that end a turn, and with it the sampling.
        decode: the text of tokens.
    """
    last = last_sampled(messages)
    assert last is not None
    known = list(messages[last]["prompt_token_ids"])
    said, template = _turns(known, ends_of_turn), _turns(before, ends_of_turn)
    if len(said) != len(template):
        return False
    samples = _samples(messages[:last], known)
    for (start, turn), (_, expected) in zip(said, template, strict=True):
        is_sampled = any(begin < start + len(turn) and start < end for begin, end in samples)
        if not (is_sampled or turn == expected or decode(turn) == decode(expected)):
            return False
    if not names_system(messages[last + 1 :]):
        return True
    head = known[: samples[0][0] if samples else None]  # before the first reply
    ends = _places(head, ends_of_turn)
    return decode(rendered).startswith(decode(head[: ends[-1] + 1 if ends else None]))


def names_system(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one of the messages is the system's or a developer's."""
    return any(message["role"] in _LEADING_ROLES for message in messages)


class Shapes:
    """Which conversations a template continues in the same way after a short one, and where it ends the reply there."""

    def __init__(self) -> None:
        self._ends: dict[object, ReplyEnd | None] = {}

    def __contains__(self, shape: object) -> bool:
        """Return whether a shape was tried."""
        return shape in self._ends

    def get(self, shape: object) -> ReplyEnd | None:
        """Return where the reply ends in short conversations of a shape; None if these are continued in another way."""
        return self._ends.get(shape)

    def put(self, shape: object, end: ReplyEnd | None) -> None:
        if len(self._ends) >= MAX_SHAPES:
            self._ends.clear()
        self._ends[shape] = end


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


def _places(tokens: Sequence[int], ends_of_turn: Collection[int]) -> list[int]:
    return [place for place, token in enumerate(tokens) if token in ends_of_turn]


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
            prompt, sampled = list(message["prompt_token_ids"]), list(message["generation_token_ids"])
            end = len(prompt) + len(sampled)
            if known[:end] == prompt + sampled:
                ranges.append((len(prompt), end))
    return ranges
