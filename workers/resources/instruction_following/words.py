"""Instructions about the words and letters of a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from gymq.workers.resources.instruction_following.arguments import Check, compare, first_given, given, not_below
from gymq.workers.resources.instruction_following.texts import sentences, tokens


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A letter occurs often, or seldom, enough, in any case."""
    if not re.fullmatch("[A-Za-z]", letter):
        raise ValueError(f"{letter!r} is not a letter")
    return compare(text.lower().count(letter.lower()), let_relation, not_below(0, let_frequency))


def capital_words(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    """Words in capitals are frequent, or rare, enough."""
    return compare(sum(token.isupper() for token in tokens(text)), capital_relation, capital_frequency)


def all_different(text: str) -> bool:
    """No token occurs twice, punctuation included."""
    words = tokens(text)
    return len(words) == len(set(words))


def no_consecutive_initials(text: str) -> bool:
    """No word begins with the letter that follows, in the alphabet, the first one of the word before."""
    initials = [word[0].lower() for word in text.split()]
    return all(ord(second) - ord(first) != 1 for first, second in pairwise(initials))


def same_start_and_end(text: str) -> bool:
    """The first token is the last one too, in any case."""
    words = tokens(text)
    return len(words) >= 2 and words[0].lower() == words[-1].lower()


def _is_first(text: str, word: str) -> bool:
    """Return whether a text begins with a word, in any case."""
    return bool(text.strip()) and text.split()[0].lower() == word.lower()


def _is_last(text: str, word: str) -> bool:
    """Return whether a text ends with a word, in any case; punctuation does not count."""
    return bool(text.strip()) and re.sub(r"[^\w\s]", "", text.split()[-1]).lower() == word.lower()


def _in_each_sentence(holds: Callable[[str, str], bool], text: str, words: str | list[str]) -> bool:
    word = first_given(words)
    return all(holds(sentence, word) for sentence in sentences(text))


CHECKS: dict[str, Check] = {
    "change_case:capital_word_frequency": capital_words,
    "count:count_unique": all_different,
    "count:lowercase_counting": lambda text, N: len(re.findall(r"\b[a-z]+\b", text)) <= N,
    "first_word:first_word_answer": lambda text, first_word: _is_first(text, given(first_word)),
    "first_word:first_word_sent": lambda text, first_word: _in_each_sentence(_is_first, text, first_word),
    "keywords:letter_frequency": letter_frequency,
    "keywords:no_adjacent_consecutive": no_consecutive_initials,
    # One letter is a palindrome.
    "keywords:palindrome": lambda text: any(word == word[::-1] for word in text.split()),
    "keywords:start_end": same_start_and_end,
    "last_word:last_word_answer": lambda text, last_word: _is_last(text, given(last_word)),
    "last_word:last_word_sent": lambda text, last_word: _in_each_sentence(_is_last, text, last_word),
    "letters:letter_counting": lambda text, N, relation: compare(len(re.findall("[A-Za-z]", text)), relation, N),
    "letters:letter_counting2": letter_frequency,
}
