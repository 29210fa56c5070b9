"""Instructions about given words. Most of them are patterns, which match in any case and inside words too."""

from __future__ import annotations

import re

from gymq.workers.resources.instruction_following.arguments import Check, compare, first_given, given, not_below
from gymq.workers.resources.instruction_following.texts import sentences, tokens


def all_occur(text: str, *, keywords: list[str]) -> bool:
    """Every keyword occurs."""
    return bool(keywords) and all(re.search(keyword, text, re.IGNORECASE) for keyword in keywords)


def none_occurs(text: str, *, forbidden_words: list[str]) -> bool:
    """No forbidden word occurs as a word of its own."""
    patterns = [rf"\b{word}\b" for word in forbidden_words]
    return bool(patterns) and not any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs often, or seldom, enough."""
    return compare(_count(keyword, text), relation, not_below(0, frequency))


def at_position(text: str, *, keyword: str | list[str], n: int, m: int) -> bool:
    """The keyword is the m-th token of the n-th sentence."""
    wanted = first_given(keyword)
    sentence = sentences(text)[not_below(1, n) - 1 : n]
    words = tokens(sentence[0]) if sentence else []
    return words[not_below(1, m) - 1 : m] == [wanted]


def _count(pattern: str, text: str) -> int:
    return len(re.findall(given(pattern), text, re.IGNORECASE))


CHECKS: dict[str, Check] = {
    "count:count_increment_word": lambda text, keyword1, keyword2: (
        _count(keyword1, text) == 1 and _count(keyword2, text) == 2
    ),
    "keywords:exclude_word_harder": lambda text, keyword: f" {given(keyword)} " not in text,
    "keywords:existence": all_occur,
    "keywords:forbidden_words": none_occurs,
    "keywords:frequency": frequency,
    "keywords:keyword_specific_position": at_position,
    "keywords:word_count_different_numbers": frequency,
    "keywords:word_once": lambda text, keyword: _count(keyword, text) == 1,
}
