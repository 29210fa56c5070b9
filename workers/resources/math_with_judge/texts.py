"""Answers that are texts and no formulas: words, orders of letters, dates, scores, times, and the units of numbers."""

from __future__ import annotations

import re

from gymq.workers.resources.string_match.measures import in_signs, unit_of

CURRENCY = "\\$"
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox)\s*\{([^{}]*)\}")
_LETTERS = re.compile(r"[A-Z]{2,}|[A-Za-z]{3,}|(?i:no|on|or|is|it|in|if|ok|up|go|he|we|us)")
# Letters in an order of their own, as of a multiple choice or of a ranking.
_LISTED = re.compile(r"\(?[A-Z](?:(?: ?[,;] ?| )[A-Z])+\)?")
_OPTION = re.compile(r"\(?([A-J])\)?")
_LABELLED = re.compile(r"\(([A-J])\) ?\S")  # an option with its text
_ABBREVIATION = re.compile(r"[A-Z](?:\. ?[A-Z])+\.?")
_PART = r"[A-Za-z]+(?:['-][A-Za-z]+)*\.?"
_WORDS = re.compile(rf"{_PART}(?: {_PART})+|[A-Z][a-z]*(?:'[A-Z]?[a-z]+|(?:-[A-Z][a-z]+)+)")
_LONG_WORD = re.compile(r"[A-Za-z]{3,}")
_FIGURE = re.compile(r"\\?(angle|triangle|overline|overleftrightarrow|square|odot|arc|widehat) ?\{? ?([A-Z]{2,}) ?\}?")
_NUMBERS = re.compile(r"(\d+(?: ?[-:] ?\d+)+|\d+(?: ?/ ?\d+){2}) ?([A-Za-z ]*)")
_IN_A_BASE = re.compile(r"(\d[\dA-F]*)(?:_ ?\{? ?(\d+) ?\}?)?")
_UNEQUAL = re.compile(r"\\neq?(?![A-Za-z])|\\not ?=")
_PRIMED = re.compile(r"(?<![\\A-Za-z])([A-Za-z])('*)")
_DIGITS = re.compile(r"\d+")
_EXPONENT = re.compile(r" ?\^ ?(?:\{(-?\d)\}|(-?\d))")
_PIECE = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox) ?\{[^{}]*\}|\^-?\d|[A-Za-z]+|[^A-Za-z]")
_NO_UNIT = re.compile(r"\\%|\^ ?\{? ?\\circ ?\}?")
_FORMULA_NAMES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "max", "min", "gcd", "lcm", "mod"})
_THERE_IS = r"(?:there (?:is|are|exists?) )?"
_NUMBERS_OF = r"real|complex|rational|integer|integral|natural|whole|positive|negative|nonnegative"
# What answers say in place of a value, in lower case. Of what kind a solution would be is in the group `kind`.
_STATEMENTS = {
    "none": re.compile(
        rf"{_THERE_IS}no (?:(?P<kind>(?:{_NUMBERS_OF})(?: (?:{_NUMBERS_OF})){{0,2}}) )?(?:such )?"
        r"(?:solutions?|roots?|answers?|values?|numbers?|integers?|triangles?)(?: exists?| is possible)?"
        r"|no (?:such )?[a-z] exists"
        r"|none(?: exists?)?|(?:[a-z] ?(?:=|\\in) ?)?(?:(?:the )?(?:empty|null) set|\\emptyset|\u00f8)"
    ),
    "undefined": re.compile(
        r"(?:(?:it|(?:the )?(?:limit|value|derivative|integral|slope)) )?"
        r"(?:(?:is )?(?:undefined|not defined)|(?:does not|doesn't) exist|d\.?n\.?e\.?)"
    ),
    "infinite": re.compile(rf"{_THERE_IS}(?:infinitely many|(?:an )?infinite(?: number of)?)(?: solutions?| roots?)?"),
}
_NOTE = re.compile(r" ?\([^()]*\)\Z")
_SMALL_WORDS = frozenset({"the", "a", "an", "of", "about", "approximately", "exactly", "in", "per"})


def same_text(expected: str, answer: str) -> bool | None:
    """Return whether both say the same; None if the expected answer is no text."""
    wanted, given = _plain(expected), _plain(answer)
    if not wanted:
        return None
    if (statement := _statement(wanted)) is not None:
        other_statement = _statement(given)
        return other_statement is not None and _agree(*statement, *other_statement)
    if (option := _OPTION.fullmatch(wanted)) is not None and (chosen := _LABELLED.match(given)) is not None:
        return chosen[1] == option[1]
    if _ABBREVIATION.fullmatch(wanted) or (wanted.isupper() and _ABBREVIATION.fullmatch(given)):
        return _letters(wanted) == _letters(given).upper()
    if _LISTED.fullmatch(wanted):
        return _same_list(_letters(wanted), given)
    if figure := _FIGURE.fullmatch(wanted):
        other = _FIGURE.fullmatch(given)
        return other is not None and other[1] == figure[1] and _same_figure(figure[1], figure[2], other[2])
    if "," in wanted and all(_NUMBERS.fullmatch(member.strip()) for member in wanted.split(",")):
        members, given_members = wanted.split(","), given.split(",")
        return len(members) == len(given_members) and all(map(same_text, members, given_members))
    if numbers := _NUMBERS.fullmatch(wanted):
        others = _NUMBERS.fullmatch(given)
        if others is None:
            return False if "-" in wanted else None
        is_other = numbers[2] and others[2] and numbers[2].lower() != others[2].lower()
        return not is_other and _signs(wanted) == _signs(given) and _values(wanted) == _values(given)
    if "_" in wanted and (number := _IN_A_BASE.fullmatch(wanted)):
        other = _IN_A_BASE.fullmatch(given)
        return other is not None and other[1].lstrip("0") == number[1].lstrip("0") and other[2] in (None, number[2])
    if _LETTERS.fullmatch(wanted) and wanted.lower() not in _FORMULA_NAMES:
        if wanted.isupper():
            return given == wanted or (_LISTED.fullmatch(given) is not None and _letters(given) == wanted)
        return given.lower() == wanted.lower()
    if _WORDS.fullmatch(wanted) and set(_LONG_WORD.findall(wanted.lower())) - _FORMULA_NAMES:
        return _without_stops(given) == _without_stops(wanted)
    if _TEXT.search(expected) and not re.search(r"[\d=^_\\]", wanted):
        return given.lower() == wanted.lower()
    return None


def other_signs(expected: str, answer: str) -> bool:
    """Return whether two answers differ in what the library does not read: units, primes, and the sign for unequal."""
    if bool(_UNEQUAL.search(expected)) != bool(_UNEQUAL.search(answer)):
        return True
    primes, others = _primes(expected), _primes(answer)
    if any(primes[letter] != others[letter] for letter in primes.keys() & others.keys()):
        return True
    wanted, given = _unit(expected), _unit(answer)
    if not wanted or not given:
        return False
    return _powers(wanted) != _powers(given) or not (wanted <= given or given <= wanted)


def _statement(text: str) -> tuple[str, str] | None:
    """Return what an answer says in place of a value, and of which kind of numbers; None if it says something else."""
    text = _NOTE.sub("", text.lower())
    for name, pattern in _STATEMENTS.items():
        if (found := pattern.fullmatch(text)) is not None:
            return name, found.groupdict().get("kind") or ""
    return None


def _agree(one: str, kind: str, other: str, other_kind: str) -> bool:
    """Return whether two statements agree; one that names no kind of numbers means those of the question."""
    return one == other and (kind == other_kind or not kind or not other_kind)


def _same_list(letters: str, given: str) -> bool | None:
    """Return whether an answer gives the same letters in their order; None if they may have another order."""
    if letters == _letters(given) and (given.isalpha() or _LISTED.fullmatch(given)):
        return True
    is_ranking = len(letters) > 2 and letters != "".join(sorted(letters))
    return False if is_ranking else None


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


def _without_stops(text: str) -> str:
    return text.replace(".", "").lower()


def _plain(text: str) -> str:
    return " ".join(_TEXT.sub(r" \1 ", text).replace("~", " ").split())


def _unit(text: str) -> frozenset[str]:
    """Return the words behind a number, and the currency before it; none if they may be letters of a formula."""
    before = frozenset({"$"} if text.startswith(CURRENCY) else ())
    pieces = _PIECE.findall(_EXPONENT.sub(r"^\1\2", _NO_UNIT.sub("", in_signs(text))).strip())
    behind = []
    while pieces and (pieces[-1] in "/ ." or len(pieces[-1]) > 1 or pieces[-1].isalpha()):
        behind.append(pieces.pop())
    while behind and behind[-1][0] == "^":  # of the number
        behind.pop()
    if not pieces or not (pieces[-1].isdigit() or pieces[-1] in ")]}"):
        return frozenset()
    if not all(unit_of(word) or len(word) > 2 for word in behind if word.isalpha()):
        return frozenset()
    words = re.findall(r"[A-Za-z]+|\^-?\d|/", _TEXT.sub(r" \1 ", " ".join(behind)))
    names = [unit_of(word) or word.lower().removesuffix("s") for word in words]
    return before | frozenset(names) - _SMALL_WORDS


def _powers(unit: frozenset[str]) -> frozenset[str]:
    """Return the exponents of a unit, and whether something is divided."""
    return frozenset(name for name in unit if name[0] in "^/")


def _primes(text: str) -> dict[str, set[str]]:
    """Return the primes that each letter has."""
    found: dict[str, set[str]] = {}
    for letter, primes in _PRIMED.findall(text):
        found.setdefault(letter, set()).add(primes)
    return found


def _same_figure(kind: str, one: str, other: str) -> bool:
    if kind in ("triangle", "square"):
        return sorted(one) == sorted(other)
    return other in (one, one[::-1])


def _signs(text: str) -> list[str]:
    return re.findall(r"[-:/]", text)


def _values(text: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(text)]
