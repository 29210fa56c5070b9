"""Answers that are texts and no formulas: words, orders of letters, dates, scores, times, and the units of numbers."""

from __future__ import annotations

import re

from gymq.workers.resources.string_match.measures import unit_of

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox)\s*\{([^{}]*)\}")
_LETTERS = re.compile(r"[A-Z]{2,}|[A-Za-z]{3,}")
_FIGURE = re.compile(r"\\?(angle|triangle|overline|overleftrightarrow|square|odot|arc|widehat) ?\{? ?([A-Z]{2,}) ?\}?")
_NUMBERS = re.compile(r"\d+(?:\s*([-:])\s*\d+)+|\d+(?:\s*/\s*\d+){2}")
_DIGITS = re.compile(r"\d+")
_EXPONENT = re.compile(r" ?\^ ?\{?(-?\d)\}?")
_PIECE = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox) ?\{[^{}]*\}|\^-?\d|[A-Za-z]+|[^A-Za-z]")
_NO_UNIT = re.compile(r"\\%|\^ ?\{? ?\\circ ?\}?")
_FORMULA_NAMES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "max", "min", "gcd", "lcm", "mod"})
_SMALL_WORDS = frozenset({"the", "a", "an", "of", "about", "approximately", "exactly", "in", "per"})


def same_text(expected: str, answer: str) -> bool | None:
    """Return whether both say the same; None if the expected answer is no text."""
    wanted, given = _plain(expected), _plain(answer)
    if not wanted:
        return None
    if figure := _FIGURE.fullmatch(wanted):
        other = _FIGURE.fullmatch(given)
        return other is not None and other[1] == figure[1] and _same_figure(figure[1], figure[2], other[2])
    if _NUMBERS.fullmatch(wanted):
        if not _NUMBERS.fullmatch(given):
            return False if "-" in wanted else None
        return _signs(wanted) == _signs(given) and _values(wanted) == _values(given)
    if _LETTERS.fullmatch(wanted) and wanted.lower() not in _FORMULA_NAMES:
        return given == wanted if wanted.isupper() else given.lower() == wanted.lower()
    if _TEXT.search(expected) and not re.search(r"[\d=^_\\]", wanted):
        return given.lower() == wanted.lower()
    return None


def other_unit(expected: str, answer: str) -> bool:
    """Return whether both have a unit, a direction or a thing that is counted, and it is not the same."""
    wanted, given = _unit(expected), _unit(answer)
    if not wanted or not given:
        return False
    return wanted != given and not wanted <= given and not given <= wanted


def _plain(text: str) -> str:
    return " ".join(_TEXT.sub(r" \1 ", text).replace("~", " ").split())


def _unit(text: str) -> frozenset[str]:
    """Return the words behind a number; none if they may be letters of a formula."""
    pieces = _PIECE.findall(_EXPONENT.sub(r"^\1", _NO_UNIT.sub("", text)).strip())
    behind = []
    while pieces and (pieces[-1] in "/ ." or len(pieces[-1]) > 1 or pieces[-1].isalpha()):
        behind.append(pieces.pop())
    if not pieces or not (pieces[-1].isdigit() or pieces[-1] in ")]}"):
        return frozenset()
    if not all(unit_of(word) or len(word) > 2 for word in behind if word.isalpha()):
        return frozenset()
    words = re.findall(r"[A-Za-z]+|\^-?\d|/", _TEXT.sub(r" \1 ", " ".join(behind)))
    names = [unit_of(word) or word.lower().removesuffix("s") for word in words]
    return frozenset(names) - _SMALL_WORDS


def _same_figure(kind: str, one: str, other: str) -> bool:
    if kind in ("triangle", "square"):
        return sorted(one) == sorted(other)
    return other in (one, one[::-1])


def _signs(text: str) -> list[str]:
    return re.findall(r"[-:/]", text)


def _values(text: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(text)]
