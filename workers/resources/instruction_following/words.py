"""Instructions about the words and letters of a text."""

from __future__ import annotations

import re
from itertools import pairwise

from gymq.workers.resources.instruction_following.arguments import compare, given, not_below
from gymq.workers.resources.instruction_following.texts import sentences, tokens


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A letter occurs often, or seldom, enough, in any case."""
    if not re.fullmatch("[A-Za-z]", letter):
        raise ValueError(f"{letter!r} is not a letter")
    return compare(text.lower().count(letter.lower()), let_relation, not_below(0, let_frequency))


def letters(text: str, *, N: int, relation: str) -> bool:
    """There are enough, or few enough, letters from A to Z."""
    return compare(len(re.findall("[A-Za-z]", text)), relation, N)


def lowercase_words(text: str, *, N: int) -> bool:
    """At most N words have nothing but lower-case letters."""
    return len(re.findall(r"\b[a-z]+\b", text)) <= N


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


def has_palindrome(text: str) -> bool:
    """Some word reads the same backwards; one letter does."""
    return any(word == word[::-1] for word in text.split())


def same_start_and_end(text: str) -> bool:
    """The first token is the last one too, in any case."""
    words = tokens(text)
    return len(words) >= 2 and words[0].lower() == words[-1].lower()


def first_word(text: str, *, first_word: str) -> bool:
    """The text begins with the word, in any case."""
    return _is_first(text, given(first_word))


def first_word_of_sentences(text: str, *, first_word: str | list[str]) -> bool:
    """Every sentence begins with the word, in any case."""
    word = given(first_word if isinstance(first_word, str) else first_word[0])
    return all(_is_first(sentence, word) for sentence in sentences(text))


def last_word(text: str, *, last_word: str) -> bool:
    """The text ends with the word, in any case; punctuation does not count."""
    return _is_last(text, given(last_word))


def last_word_of_sentences(text: str, *, last_word: str | list[str]) -> bool:
    """Every sentence ends with the word, in any case; punctuation does not count."""
    word = given(last_word if isinstance(last_word, str) else last_word[0])
    return all(_is_last(sentence, word) for sentence in sentences(text))


def _is_first(text: str, word: str) -> bool:
    return bool(text.strip()) and text.split()[0].lower() == word.lower()


def _is_last(text: str, word: str) -> bool:
    return bool(text.strip()) and re.sub(r"[^\w\s]", "", text.split()[-1]).lower() == word.lower()
