"""Instructions about the number of words, sentences, pieces and paragraphs."""

from __future__ import annotations

import re

from gymq.workers.resources.instruction_following.arguments import Check, compare, not_below
from gymq.workers.resources.instruction_following.texts import (
    count_filled,
    paragraphs,
    pieces,
    punkt_sentences,
    sentences,
    tokens,
)


def number_of_words(text: str, *, num_words: int, relation: str) -> bool:
    """Enough, or few enough, words: runs of letters, digits and underscores."""
    return compare(len(re.findall(r"\w+", text)), relation, not_below(0, num_words))


def number_of_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    """Enough, or few enough, sentences."""
    return compare(len(punkt_sentences(text)), relation, not_below(0, num_sentences))


def first_word_of_paragraph(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """As many paragraphs as wanted, and one of them begins with a word. Empty ones count for its place only."""
    place = not_below(1, nth_paragraph)
    not_below(place, num_paragraphs)
    parts = paragraphs(text)
    if sum(bool(part.strip()) for part in parts) != num_paragraphs:
        return False
    words = parts[place - 1].split()
    return bool(words) and _without_punctuation(words[0]).lower() == first_word.lower()


def composition(text: str, *, n_sent: int, n_words: int) -> bool:
    """Three pieces of so many sentences, each of so many tokens."""
    parts = pieces(text)
    return len(parts) == 3 and all(_is_composed(part, not_below(1, n_sent), not_below(1, n_words)) for part in parts)


def _is_composed(piece: str, num_sentences: int, num_tokens: int) -> bool:
    found = sentences(piece)
    return len(found) == num_sentences and all(len(tokens(sentence)) == num_tokens for sentence in found)


def _without_punctuation(word: str) -> str:
    """The word without leading quotation marks, up to its first mark."""
    return re.split(r"[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0]


CHECKS: dict[str, Check] = {
    "count:counting_composition": composition,
    "length_constraints:nth_paragraph_first_word": first_word_of_paragraph,
    "length_constraints:number_paragraphs": lambda text, num_paragraphs: (
        count_filled(pieces(text)) == not_below(0, num_paragraphs)
    ),
    "length_constraints:number_sentences": number_of_sentences,
    "length_constraints:number_words": number_of_words,
    "paragraphs:paragraphs": lambda text: count_filled(pieces(text)) == 2,
    "paragraphs:paragraphs2": lambda text: count_filled(paragraphs(text)) == 2,
}
