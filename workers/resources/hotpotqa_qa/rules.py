"""The two ways to look for a spelling of the expected answer: as a word of its own, and as NeMo Gym does."""

from __future__ import annotations

import re
from typing import Protocol

from gymq.workers.resources.hotpotqa_qa.scores import plain, plain_forms, without_thousands_commas

LONG_ANSWER_CHARS = 80  # of a longer one, a spelling of the expected answer has to begin early
EARLY = 40  # the last position at which it may begin
SHORT_SPELLING_CHARS = 4  # as published, one that is no longer has to be a word


class ContainmentRule(Protocol):
    """Looks for a spelling in an answer."""

    def contains(self, answer: str, spellings: set[str]) -> bool:
        """Return whether an answer contains a spelling, which begins early if the answer is long."""


class WholeWords:
    """Takes no spelling that is a part of a longer word, name or number."""

    def contains(self, answer: str, spellings: set[str]) -> bool:
        text = plain(answer)
        last = EARLY if len(text) > LONG_ANSWER_CHARS else len(text)
        texts = {text, without_thousands_commas(text)}
        return any(_stands_alone(text, spelling, last) for spelling in plain_forms(spellings) for text in texts)


class Published:
    """Takes long spellings inside of words too, as NeMo Gym does."""

    def contains(self, answer: str, spellings: set[str]) -> bool:
        text = plain(answer)
        return any(_is_in_place(text, spelling) for spelling in plain_forms(spellings))


# What may not stand before and behind a spelling that begins or ends with a letter, and with a digit.
_BEFORE = {True: r"(?<![\w])(?<![^\W\d]-)", False: r"(?<![\w])(?<!\d[.,])(?<![^\w][-+])(?<!^[-+])"}
_BEHIND = {True: r"(?!\w)(?!-[^\W\d])", False: r"(?!\w)(?![.,]\d)"}


def _stands_alone(text: str, spelling: str, last: int) -> bool:
    first, end = spelling[0], spelling[-1]
    before = _BEFORE[first.isalpha()] if first.isalnum() else ""
    behind = _BEHIND[end.isalpha()] if end.isalnum() else ""
    found = re.search(before + re.escape(spelling) + behind, text)
    return found is not None and found.start() <= last


def _is_in_place(text: str, spelling: str) -> bool:
    first = text.find(spelling)
    if first < 0 or (len(text) > LONG_ANSWER_CHARS and first > EARLY):
        return False
    return len(spelling) > SHORT_SPELLING_CHARS or _is_a_word(text, spelling, first)


def _is_a_word(text: str, spelling: str, start: int) -> bool:
    while start >= 0:
        around = text[max(start - 1, 0) : start] + text[start + len(spelling) : start + len(spelling) + 1]
        if not any(character.isalnum() or character == "_" for character in around):
            return True
        start = text.find(spelling, start + 1)
    return False
