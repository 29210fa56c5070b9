"""The two ways to look for a spelling of the expected answer: as a word of its own, and as NeMo Gym does."""

from __future__ import annotations

from gymq.workers.resources.hotpotqa_qa.scores import plain_forms

from gymq.text import Words, plain

LONG_ANSWER_CHARS = 80  # of a longer one, a spelling of the expected answer has to begin early
EARLY = 40  # the last position at which it may begin
SHORT_SPELLING_CHARS = 4  # as published, one that is no longer has to be a word


def has_word(answer: str, spellings: set[str]) -> bool:
    """Return whether an answer has a spelling as whole words or numbers, near its beginning if the answer is long."""
    last = EARLY if len(plain(answer)) > LONG_ANSWER_CHARS else len(answer)
    places = map(Words(answer).place_of, spellings)
    return any(place is not None and place <= last for place in places)


def published_has_word(answer: str, spellings: set[str]) -> bool:
    """Return it for NeMo Gym, which takes long spellings inside of words too."""
    text = plain(answer)
    return any(_is_in_place(text, spelling) for spelling in plain_forms(spellings))


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
