"""Rules about words."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from gymq.workers.resources.ifbench.texts import OUTER, Rule, bare, bare_words
from gymq.workers.resources.instruction_following.texts import first_tag, sentences, tokens

PRIMES = frozenset(
    number for number in range(2, 100) if all(number % divisor for divisor in range(2, int(number**0.5) + 1))
)
PALINDROMES = 10
PALINDROME_LETTERS = 5
VOWELS = frozenset("aeiou")

_TWO_CONSONANTS = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")


def alphabet(text: str) -> bool:
    """Each word begins with the letter after that of the word before, from z to a again."""
    initials = [ord(word[0]) - ord("a") for word in bare_words(text)]
    if not 0 <= initials[0] < 26:
        return False
    return all(second == (first + 1) % 26 for first, second in pairwise(initials))


def three_vowels(text: str) -> bool:
    """The text is one paragraph with at most three different vowels."""
    text = text.strip()
    return "\n" not in text and len(VOWELS.intersection(text.lower())) <= 3


def palindromes(text: str) -> bool:
    """There are ten palindromes of five letters or more."""
    long = (word for word in bare_words(text) if len(word) >= PALINDROME_LETTERS)
    return sum(word == word[::-1] for word in long) >= PALINDROMES


def alternating_syllables(text: str) -> bool:
    """Words with odd and with even numbers of syllables alternate."""
    import syllapy

    parities = [syllapy.count(word) % 2 for word in bare_words(text)]
    return all(first != second for first, second in pairwise(parities))


def last_is_next_first(text: str) -> bool:
    """The last word of each sentence is the first of the next."""
    return all(
        before.rstrip(OUTER).split()[-1].lower() == after.lstrip(OUTER).split()[0].lower()
        for before, after in pairwise(sentences(text))
    )


def lines_end_as_they_begin(text: str) -> bool:
    """The last word of each line is its first."""
    lines = (line.strip().lower().strip(OUTER).split() for line in text.split("\n"))
    return all(words[0] == words[-1] for words in lines if words)


def keyword_at_both_ends(text: str, *, keyword: str) -> bool:
    """The keyword is the second token and the second to last."""
    words = tokens(text)
    return words[1] == words[-2] == keyword.strip()


RULES: dict[str, Rule] = {
    "words:alphabet": alphabet,
    # Every word has two consonants side by side.
    "words:consonants": lambda text: all(_TWO_CONSONANTS.search(piece) for piece in text.lower().split()),
    # The keyword is token m of sentence n. Negative numbers count from the end: -1 is the second to last.
    "words:keywords_specific_position": lambda text, keyword, n, m: (
        tokens(sentences(text)[n - 1])[m - 1] == keyword.strip()
    ),
    "words:last_first": last_is_next_first,
    # No two neighbouring words begin with the same letter.
    "words:no_consecutive": lambda text: all(first[0] != second[0] for first, second in pairwise(bare_words(text))),
    "words:odd_even_syllables": alternating_syllables,
    "words:palindrome": palindromes,
    "words:paragraph_last_first": lines_end_as_they_begin,
    # The number of letters of every word is a prime below 100.
    "words:prime_lengths": lambda text: all(len(word) in PRIMES for word in bare(text).split()),
    # No word occurs more often than that.
    "words:repeats": lambda text, small_n: max(Counter(bare_words(text)).values(), default=0) <= small_n,
    # The first word is tagged as a verb.
    "words:start_verb": lambda text: "VB" in first_tag(text),
    "words:vowel": three_vowels,
    "words:words_position": keyword_at_both_ends,
}
