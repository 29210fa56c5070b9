"""Comparing a short answer with the expected one, whatever way numbers, formulas, lists, states and units are written.

All of it takes linear time, except for the normal form of a letter with thousands of combining marks.
"""

from __future__ import annotations

import re
import unicodedata

from gymq.workers.resources.string_match.measures import is_rounded, measure, same_unit
from gymq.workers.resources.string_match.published import CLOSE, EQUAL, without_latex
from gymq.workers.resources.string_match.states import STATES

from gymq.ext.text import undressed

_STATE = re.compile(rf"(?<![a-z])(?:{'|'.join(STATES)})(?![a-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MARKS = "*`,; \t\n"
_ENDS = _MARKS + ".!?"
_BETWEEN = re.compile(r" ?(?:[,;] ?(?:and\b)?|\band\b|&) ?")

# Before the compatibility form of Unicode, which makes a plain digit of a power.
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2018\u2019\u02bc\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u2033", '"'),
        **dict.fromkeys("\u2009\u202f\u200a", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        "\u00b9": "^1",
        "\u00b2": "^2",
        "\u00b3": "^3",
        **{chr(0x2070 + digit): f"^{digit}" for digit in (0, *range(4, 10))},
        "\u221a": "\\sqrt",
        "\u03c0": "\\pi",
        "\u00d7": "\\times",
    }
)


def score(answer: str, expected: str, *, case_sensitive: bool = False) -> float:
    """Return 1 if both say the same, 0.98 if they are the same number rounded or without its unit, otherwise 0."""
    given, wanted = plain(answer), plain(expected)
    if case_sensitive:
        return EQUAL if given == wanted and given else 0.0
    given, wanted = given.lower(), wanted.lower()
    if not given or not wanted:
        return 0.0
    if given == wanted:
        return EQUAL
    this, other = measure(given), measure(wanted)
    if this is not None and other is not None:
        if not same_unit(this.unit, other.unit) or not is_rounded(this.value, other.value):
            return 0.0
        return EQUAL if this.value == other.value and this.unit == (other.unit or this.unit) else CLOSE
    return EQUAL if any(_same(form(given), form(wanted)) for form in (_formula, _listed, _states)) else 0.0


def plain(text: str) -> str:
    """Return the text without the marks around it, with plain signs, commas of thousands taken out, single blanks."""
    text = undressed(undressed(text).strip(_MARKS).rstrip(_ENDS)).strip(_MARKS).rstrip(_ENDS)
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)).replace("\\%", "%").replace("\\$", "$")
    return " ".join(_THOUSANDS.sub("", without_latex(text) if "\\" in text else text).split())


def _same(given: str, wanted: str) -> bool:
    """Return whether two forms are the same; one of which nothing is left says nothing."""
    return given == wanted and bool(wanted.strip())


def _formula(text: str) -> str:
    return re.sub(r"\s+|[{}]", "", text)


def _listed(text: str) -> str:
    """Return a list with single blanks between its members."""
    return _BETWEEN.sub(" ", text)


def _states(text: str) -> str:
    return _listed(_STATE.sub(lambda found: STATES[found[0]].lower(), text))
