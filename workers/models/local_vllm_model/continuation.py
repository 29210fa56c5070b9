"""The prompt of a later turn, made of the very tokens of the earlier ones. Nothing here does I/O.

A chat template applied to a conversation gives text. Tokenized again, that text may give other tokens than were
sampled, and what was sampled would be no prefix of the next prompt: training on such a chain goes wrong unseen. So a
later prompt is put together: what the engine was given and what it sampled in the last turn, as they were, then from
the template only what is new in the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Decode = Callable[[Sequence[int]], str]


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
    ends = [index for index, token in enumerate(rendered) if token in ends_of_turn]
    if len(ends) < num_turns:
        return None
    end = ends[num_turns - 1]
    return known + list(rendered[end + is_closed :])


def _tokens(message: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    return list(message["prompt_token_ids"]), list(message["generation_token_ids"])


def _turns(tokens: Sequence[int], ends_of_turn: Collection[int]) -> list[tuple[int, list[int]]]:
    """The pieces between the tokens that end a turn, each with the index it begins at."""
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
