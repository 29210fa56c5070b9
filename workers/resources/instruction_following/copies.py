"""Instructions to repeat something."""

from __future__ import annotations

import re

from gymq.workers.resources.instruction_following.arguments import Check, given, not_below
from gymq.workers.resources.instruction_following.texts import count_filled

DIVIDER = "******"


def two_responses(text: str) -> bool:
    """Two different responses with the divider between them."""
    parts = [part.strip() for part in text.split(DIVIDER)]
    return count_filled(parts) == 2 and len({part for part in parts if part}) == 2


def copies(text: str, *, prompt_to_repeat: str) -> bool:
    """The text is the prompt, in any case."""
    return text.strip().lower() == given(prompt_to_repeat).lower()


def copies_several_times(text: str, *, prompt_to_repeat: str, N: int) -> bool:
    """The text is the prompt N times, with the divider in between."""
    parts = text.split(DIVIDER)
    return len(parts) == N and all(copies(part, prompt_to_repeat=prompt_to_repeat) for part in parts)


def copies_span(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The text is a stretch of the prompt, in any case; counted in characters from 0, without the one at the end."""
    if not prompt_to_repeat:
        raise ValueError("there is no prompt")
    return text.strip().lower() == prompt_to_repeat[n_start:n_end].strip().lower()


def repeats_phrase(text: str, *, phrase: str, small_n: int) -> bool:
    """So many variants of the phrase, each from its first word to its last one, with at most one other word.

    The last variant has to have one.
    """
    words = given(phrase).split()
    variants = [variant.split() for variant in re.findall(f"{words[0]} .*? {words[-1]}", text)]
    if len(variants) != not_below(1, small_n) or any(len(variant) != len(words) for variant in variants):
        return False
    changes = [sum(map(str.__ne__, variant, words)) for variant in variants]
    return max(changes) <= 1 and changes[-1] == 1


CHECKS: dict[str, Check] = {
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(given(prompt_to_repeat).lower())
    ),
    "combination:two_responses": two_responses,
    "copy:copy": copies,
    "copy:copying_multiple": copies_several_times,
    "copy:copying_simple": copies,
    "copy:repeat_phrase": repeats_phrase,
    "new:copy_span_idx": copies_span,
}
