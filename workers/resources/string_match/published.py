"""How NeMo Gym compares a short answer with the expected one.

All of it takes linear time, except for the normal form of a letter with thousands of combining marks.
"""

from __future__ import annotations

import re
import unicodedata

from gymq.workers.resources.mcqa.published import closing_braces
from gymq.workers.resources.string_match.states import STATES

EQUAL = 1.0
CLOSE = 0.98  # the reward of numbers that are close, and the score above which they are

_DIGIT_COMMA = re.compile(r"\d+(?:,\d+)?")
_WRAPPERS = [
    f"\\{name}{{"
    for name in (
        *("boxed", "text", "textbf", "textit", "texttt", "mathrm", "mathbf", "mathit"),
        *("mathsf", "mathbb", "mathcal", "emph", "url"),
    )
]
_DELIMITERS = ("\\(", "\\)", "\\[", "\\]", "$")
_UNITS = re.compile(r"\^\{?\\circ\}?|\\circ|\u00b0|[ck]?m[\u00b2\u00b3]?|kg")  # `cm`, `mm`, `km`, `m`: each `m` goes
_CURRENCIES = str.maketrans("", "", "$\u00a3\u20ac%,")
_UNICODE_MATH = str.maketrans(
    {
        "\u00b0": "^\\circ",
        "\u00b2": "^2",
        "\u00b3": "^3",
        **{chr(0x2070 + digit): f"^{digit}" for digit in range(4, 10)},
        "\u221a": "\\sqrt",
        "\u03c0": "\\pi",
        "\ufe63": "-",
        "\ufe62": "+",
        "\ufe66": "=",
        "\ufe64": "<",
        "\ufe65": ">",
        "\uff1a": ":",
    }
)


def score(answer: str, expected: str, *, case_sensitive: bool = False) -> float:
    """Return 1 if both say the same, 0.98 if they are numbers that are close, otherwise 0."""
    if case_sensitive:
        return EQUAL if answer.strip() == expected.strip() else 0.0
    given, wanted = normalised(answer), normalised(expected)
    forms = (str, number, without_digit_comma, without_latex, as_list, states)
    if any(_same(form(given), form(wanted)) for form in forms):
        return EQUAL
    if closeness(given, wanted) > CLOSE:
        return CLOSE
    given, wanted = without_units(given), without_units(wanted)
    if _same(given, wanted):
        return EQUAL
    return CLOSE if closeness(given, wanted) > CLOSE else 0.0


def _same(given: str, wanted: str) -> bool:
    """Return whether two forms are the same; one of which nothing is left says nothing."""
    return given == wanted and bool(wanted.strip())


def normalised(text: str) -> str:
    """Return the text in NFKC and lower case, without outer quotes and without punctuation at its end."""
    text = unicodedata.normalize("NFKC", text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def number(text: str) -> str:
    """Return the value of a number as Python writes it, without signs of percent and dollars; other texts unchanged."""
    bare = text.replace("\\%", "").replace("\\$", "").replace("$", "").strip()
    value = _float(bare)
    return text if value is None else str(value)


def without_digit_comma(text: str) -> str:
    """Return the text with digits joined that a comma separates: of two commas in a number the first goes."""
    return _DIGIT_COMMA.sub(lambda found: found[0].replace(",", ""), text).replace("\\%", "%")


def without_latex(text: str) -> str:
    """Return the contents of LaTeX commands for fonts and boxes, without delimiters of formulas."""
    for wrapper in _WRAPPERS:
        text = _unwrapped(text, wrapper)
    for delimiter in _DELIMITERS:
        text = text.replace(delimiter, "")
    return _collapsed(text)


def as_list(text: str) -> str:
    """Return the members of a list with single blanks between them; the text as it is if too much would go."""
    members = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    return text if len(members) < 0.9 * len(text) else _collapsed(members)


def states(text: str) -> str:
    """Return the text as a list, with postal codes for the names of US states."""
    for name, code in STATES.items():
        text = text.replace(name, code)
    return as_list(text).lower()


def without_units(text: str) -> str:
    """Return the text without LaTeX and units; letters of a unit go inside words too."""
    return _UNITS.sub("", without_latex(text).translate(_UNICODE_MATH)).strip()


def closeness(given: str, expected: str) -> float:
    """Return how close two numbers are, from 0 to 1; 0 if one is none. Above 0.98 their relative error is below 1 %."""
    value, wanted = _bare_number(given), _bare_number(expected)
    if value is None or wanted is None:
        return 0.0
    return max(0.0, 1.0 - abs(value - wanted) / max(abs(wanted), 1e-9)) ** 2


def _bare_number(text: str) -> float | None:
    text = _UNITS.sub("", text.translate(_CURRENCIES).translate(_UNICODE_MATH))
    return _float(text.replace("\\%", "").replace("\\$", "").strip())


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unwrapped(text: str, wrapper: str) -> str:
    """Return the text without a command and its braces; of one that never closes only the opening goes."""
    if wrapper not in text:
        return text
    ends = closing_braces(text)
    pieces, position = [], 0
    cuts: list[tuple[int, int]] = []
    start = text.find(wrapper)
    while start >= 0:
        after = start + len(wrapper)
        cuts.append((start, after))
        if after - 1 in ends:
            cuts.append((ends[after - 1], ends[after - 1] + 1))
        start = text.find(wrapper, after)
    for start, end in sorted(cuts):
        pieces.append(text[position:start])
        position = end
    return "".join(pieces) + text[position:]


def _collapsed(text: str) -> str:
    return " ".join(text.split())
