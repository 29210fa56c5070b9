"""Comparing a short answer with the expected one: exact match, token F1 and whether it contains a spelling of it."""

from __future__ import annotations

import re
import string
from collections import Counter

from gymq.ext.text import Words, plain

LONG_ANSWER_CHARS = 80  # of a longer one, a spelling of the expected answer has to begin early
EARLY = 40  # the last position at which it may begin
SHORT_SPELLING_CHARS = 4  # as published, one of at most so many has to be a word

LONG_EXPECTED_CHARS = 40

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_YES_OR_NO = re.compile(r"\b(?:yes|no)\b")
_NO_TOKENS = ("yes", "no", "noanswer")

_LEADING = ("the ", "a ", "an ")
_QUOTES = str.maketrans("", "", '"\u201c\u201d')
_THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3})")
_LONE_STOP = re.compile(r"(?<!\d)\.(?!\d)")
_AND = re.compile(" and ", re.IGNORECASE)
_CARDINALS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_ORDINALS = {
    "first": "1st",
    "second": "2nd",
    "third": "3rd",
    "fourth": "4th",
    "fifth": "5th",
    "nineteenth": "19th",
    "twentieth": "20th",
    "twenty-first": "21st",
}
_NUMBERS = {word: str(number) for number, word in enumerate(_CARDINALS, 1)} | _ORDINALS
_OTHER_FORM = _NUMBERS | {number: word for word, number in _NUMBERS.items()}

_ARTICLES_AND_THE_LIKE = (
    "the a an of in on at for and or to by is was are were be been with from that this it its his her my our their no "
    "not but if as into about than then"
)
_SMALL_WORDS = frozenset(_ARTICLES_AND_THE_LIKE.split())


def exact_match(answer: str, expected: str) -> float:
    """Return 1 if both texts are the same but for case, punctuation, articles and white space; otherwise 0."""
    return float(_normalised(answer) == _normalised(expected))


def token_f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall of the tokens, from 0 to 1."""
    given, wanted = _normalised(answer), _normalised(expected)
    if given != wanted and (given in _NO_TOKENS or wanted in _NO_TOKENS):
        return 0.0
    given_tokens, wanted_tokens = given.split(), wanted.split()
    common = (Counter(given_tokens) & Counter(wanted_tokens)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(given_tokens), common / len(wanted_tokens)
    return 2 * precision * recall / (precision + recall)


def contains(answer: str, spellings: set[str]) -> bool:
    """Return whether an answer contains a spelling of the expected one."""
    text = plain(answer)
    return any(spelling in text for spelling in plain_forms(spellings))


def says_the_other(answer: str, expected: str) -> bool:
    """Return whether yes or no is expected, and the answer says the other one first."""
    wanted = plain(expected)
    first = _YES_OR_NO.search(plain(answer)) if wanted in ("yes", "no") else None
    return first is not None and first[0] != wanted


def spellings_of(expected: str) -> set[str]:
    """Return the ways in which an expected answer may be written."""
    found = {expected, _without_article(expected), expected.translate(_QUOTES).strip()}
    if "(" in expected:
        found |= _without_brackets(expected)
    found.add(_OTHER_FORM.get(expected.strip().lower(), expected))
    found.add(_without_thousands_commas(expected))
    if expected.endswith((".", ",", ";", ":", "!", "?")):
        found.add(expected[:-1].rstrip())
    without_stops = _LONE_STOP.sub("", expected)
    if len(without_stops) > 1:
        found.add(without_stops)
    if "-" in expected and not expected.startswith("-"):
        found.add(" ".join(expected.replace("-", " ").split()))
    found.add(expected.replace(" & ", " and "))
    found.add(_AND.sub(" & ", expected, count=1))
    found |= {_without_article(spelling) for spelling in found}
    whole = expected.strip()
    collapsed = {" ".join(spelling.split()) for spelling in found}
    return {one for one in collapsed if one and (len(one) >= 3 or one == whole or one.isdigit())}


def unreliable(expected: str) -> str:
    """Return why an expected answer is hard to compare with: it is long, or looks like a name; empty if it is not."""
    if len(expected) > LONG_EXPECTED_CHARS:
        return "gt_too_long"
    words = expected.strip().rstrip(".").split()
    capitals = sum(word[0].isupper() and word.lower() not in _SMALL_WORDS for word in words)
    is_name = capitals == len(words) if len(words) in (3, 4) else len(words) in (5, 6) and capitals >= 3
    return "multi_word_name" if is_name else ""


def _normalised(text: str) -> str:
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _without_article(text: str) -> str:
    return next((text[len(article) :] for article in _LEADING if text.lower().startswith(article)), text)


def _without_brackets(text: str) -> set[str]:
    """Return a text without what stands in brackets, and what stands in each."""
    contents, pieces, position = [], [], 0
    while (begin := text.find("(", position)) >= 0 and (end := text.find(")", begin)) >= 0:
        pieces.append(text[position:begin])
        contents.append(text[begin + 1 : end].strip())
        position = end + 1
    rest = " ".join([*pieces, text[position:]])
    return {" ".join(rest.split()), *(content for content in contents if len(content) > 1)}


def _without_thousands_commas(text: str) -> str:
    """Return the text without the commas between thousands."""
    while (shorter := _THOUSANDS_COMMA.sub("", text)) != text:
        text = shorter
    return text


def plain_forms(spellings: set[str]) -> set[str]:
    """Return the spellings in plain text, without empty ones."""
    return {plain(spelling) for spelling in spellings} - {""}


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
