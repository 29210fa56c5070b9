"""Rules about how many there are of something, and about shares."""

from __future__ import annotations

import re

from gymq.workers.resources.ifbench.texts import Rule, bare, bare_words, runs, trimmed
from gymq.workers.resources.instruction_following.texts import sentences, stop_words

CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})

_NAMES = """
Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper
Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla
Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
"""
_PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves
"""
NAMES = tuple(_NAMES.split())
PRONOUNS = frozenset(_PRONOUNS.split())

KEYWORD_COUNTS = (1, 2, 3, 5, 7)
MARKS = ".,!?;:"
INTERROBANGS = ("?!", "!?", "\u203d")
TOLERANCE = 2  # percentage points

_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


def punctuation(text: str) -> bool:
    """Every mark occurs, and besides them an interrobang."""
    first = next((mark for mark in INTERROBANGS if mark in text), None)
    if first is None:
        return False
    rest = text if first == INTERROBANGS[-1] else text.replace(first, "", 1)
    return all(mark in rest for mark in MARKS)


def keywords(text: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    """Five keywords occur 1, 2, 3, 5 and 7 times, inside words too."""
    text = text.lower()
    given = (keyword1, keyword2, keyword3, keyword4, keyword5)
    found = [text.count(keyword.strip().lower()) for keyword in given]
    return found == list(KEYWORD_COUNTS)


def japanese_words(text: str, *, N: float) -> bool:
    """Every Nth word has a Japanese character; numbers and marks need none."""
    nth = [trimmed(piece) for number, piece in enumerate(text.split(), 1) if number % N == 0]
    return all(not word or word.isdigit() or _JAPANESE.search(word) for word in nth)


def share_of_stop_words(text: str, *, percentage: float) -> bool:
    """Stop words are not more than a share of the words."""
    words = runs(text)
    return 100 * (sum(word.lower() in stop_words() for word in words) / len(words)) <= percentage


def two_statements_for_a_question(text: str) -> bool:
    """There are twice as many statements as questions."""
    ends = _ends(text)
    return ends["."] == 2 * ends["?"]


def equally_long_sentences(text: str) -> bool:
    """There are three sentences with as many characters each."""
    found = sentences(text)
    return len(found) == 3 and len({len(sentence) for sentence in found}) == 1


def overlap(text: str, *, reference_text: str, percentage: float) -> bool:
    """A share of the text's trigrams of characters is in the reference, give or take two percentage points."""
    own = _trigrams(text)
    share = 100 * (len(own & _trigrams(reference_text)) / len(own))
    return percentage - TOLERANCE <= share <= percentage + TOLERANCE


def _ends(text: str) -> dict[str, int]:
    found = sentences(text)
    return {mark: sum(sentence.endswith(mark) for sentence in found) for mark in ".?!"}


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


RULES: dict[str, Rule] = {
    # There are enough different coordinating conjunctions; spellings count as different.
    "count:conjunctions": lambda text, small_n: (
        len({piece for piece in text.split() if trimmed(piece).lower() in CONJUNCTIONS}) >= small_n
    ),
    "count:keywords_multiple": keywords,
    # There are exactly N numbers.
    "count:numbers": lambda text, N: len(re.findall(r"\d+", bare(text))) == N,
    # Enough of the names occur, inside words too.
    "count:person_names": lambda text, N: sum(name in text for name in NAMES) >= N,
    # There are enough pronouns.
    "count:pronouns": lambda text, N: sum(word in PRONOUNS for word in bare_words(text.replace("/", " "))) >= N,
    "count:punctuation": punctuation,
    # There are enough different words.
    "count:unique_word_count": lambda text, N: len({trimmed(piece) for piece in text.lower().split()}) >= N,
    # The number of words is within limits.
    "count:word_count_range": lambda text, min_words, max_words: min_words <= len(runs(text)) <= max_words,
    "count:words_japanese": japanese_words,
    "ratio:overlap": overlap,
    # There are as many statements as questions and as exclamations.
    "ratio:sentence_balance": lambda text: len(set(_ends(text).values())) == 1,
    "ratio:sentence_type": two_statements_for_a_question,
    "ratio:sentence_words": equally_long_sentences,
    "ratio:stop_words": share_of_stop_words,
}
