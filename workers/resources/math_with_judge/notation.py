"""Answers in one notation: plain text, Unicode and LaTeX in dress become LaTeX that math-verify reads rightly."""

from __future__ import annotations

import re

from gymq.workers.resources.string_match.measures import unit_of

from gymq.text import closing_braces, undressed

_UPRIGHT = re.compile(r"\\(?:mathrm|mathit|mathbf|operatorname|rm|mathsf)\s*\{\s*([A-Za-z])\s*\}")
_UPRIGHT_NAME = re.compile(
    r"\\(?:mathrm|operatorname)\s*\{\s*(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|max|min|gcd|lcm)\s*\}"
)
_SIZE = re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])")
_SAYS = re.compile(r"\\text ?\{([^{}]*)\}")
_SAYS_AT_ITS_END = re.compile(r"\b(?:is|are|equals|be|get|have|answer):?\Z|:\Z", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,;:! ]|\{,\}|[\u2009\u202f\u00a0'](?=\d{3}))+(?=\d{3}(?!\d))")
_BLANKS = re.compile(r"[ \t\r\n]+")
_THIN = re.compile(r"\\[,;:!]|[\u2009\u200a\u202f\u00a0]|\\ ")
_ROOT = re.compile(r"([\u221a\u221b\u221c])\s*(\d+(?:\.\d+)?|[A-Za-z])")
_ROOT_OF = re.compile(r"([\u221a\u221b\u221c])\s*\(([^()]*)\)")
_INDEX = {"\u221a": "", "\u221b": "[3]", "\u221c": "[4]"}
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207f\u2071"
_RAISED_RUN = re.compile(f"[{_RAISED}]+")
_PLAIN_OF_RAISED = str.maketrans(_RAISED, "0123456789+-ni")
_LOWERED = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089"
_LOWERED_RUN = re.compile(f"[{_LOWERED}]+")
_PLAIN_OF_LOWERED = str.maketrans(_LOWERED, "0123456789")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63\uff0d", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ",
        "\u00f7": r"\div ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u00b1": r"\pm ",
        "\u00b0": r"^{\circ}",
        "\u00bd": r"\frac{1}{2}",
        "\u00bc": r"\frac{1}{4}",
        "\u00be": r"\frac{3}{4}",
        "\u2153": r"\frac{1}{3}",
        "\u2154": r"\frac{2}{3}",
        "\u222a": r"\cup ",
        "\u2229": r"\cap ",
        "\u2208": r"\in ",
        "\u03b8": r"\theta ",
        "\u03b1": r"\alpha ",
        "\u03b2": r"\beta ",
    }
)
_ARROW = re.compile(r"\\(?:to|(?:long)?rightarrow|(?:Long)?[Rr]ightarrow|implies|mapsto)(?![A-Za-z])|[\u2192\u21d2]")
_REPEATING = re.compile(
    r"(?<![\d.])(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{(\d+)\}|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?|\((\d+)\))"
)
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp"
_FUNCTION = re.compile(rf"(?<![\\A-Za-z])({_FUNCTIONS})(?![A-Za-z])")
_NAME = re.compile(r"(?<![\\A-Za-z])(pi|theta|alpha|beta|infinity|inf)(?![A-Za-z])")
_OPENS = re.compile(r"(?<![\\A-Za-z])(sqrt|cbrt)\s*\(|\^\s*\(")
_MOST_OPENINGS = 50
_TIMES = re.compile(r"(?<=[\w)}\]])\s*\*\s*(?=[\w({\[\\])")
_PRODUCT = re.compile(r"(?<=\d)([a-z]{2,3})(?![A-Za-z(])")
_POWER_OF_DIGITS = re.compile(r"\^\s*(-?\d{2,}|-\d)")


def tidy(answer: str) -> str:
    """Return an answer in LaTeX, without the dress around it."""
    text = _BLANKS.sub(" ", undressed(answer.translate(_SIGNS)))
    text = _RAISED_RUN.sub(lambda found: "^{" + found[0].translate(_PLAIN_OF_RAISED) + "}", text)
    text = _LOWERED_RUN.sub(lambda found: "_{" + found[0].translate(_PLAIN_OF_LOWERED) + "}", text)
    text = _ARROW.sub(" = ", _SIZE.sub("", text))
    text = _UPRIGHT_NAME.sub(r"\\\1", _UPRIGHT.sub(r"\1", text))
    text = _THIN.sub(" ", _THOUSANDS.sub("", text))
    text = _ROOT_OF.sub(lambda found: rf"\sqrt{_INDEX[found[1]]}{{{found[2]}}}", text)
    text = _ROOT.sub(lambda found: rf"\sqrt{_INDEX[found[1]]}{{{found[2]}}}", text)
    text = _SAYS.sub(_unless_it_introduces, text).strip()
    text = undressed(_without_stop(text))
    text = _REPEATING.sub(_fraction, text)
    return _PRODUCT.sub(_as_product, _from_plain(text))


def _as_product(found: re.Match[str]) -> str:
    """Return letters behind a number as factors, unless they are a unit: the library takes some of them for one."""
    return found[0] if unit_of(found[1]) else r" \cdot " + r" \cdot ".join(found[1])


def _unless_it_introduces(found: re.Match[str]) -> str:
    """Return nothing for words such as `The answer is`."""
    return "" if _SAYS_AT_ITS_END.search(found[1].strip()) else found[0]


def _without_stop(text: str) -> str:
    while text.endswith((".", ",", ";")) and not text.endswith(("\\,", "\\;")):
        text = text[:-1].rstrip()
    return text


def _fraction(found: re.Match[str]) -> str:
    """Return a repeating decimal as a fraction: 0.1 and 23 again and again is (123 - 1) / 990."""
    whole, fixed = found[1] or "0", found[2]
    again = found[3] or found[7] or f"{found[4]}{found[5] or ''}{found[6] or ''}"
    if max(map(len, (whole, fixed, again))) > 100:
        return found[0]
    numerator = int(whole + fixed + again) - int((whole + fixed) or "0")
    return rf"\frac{{{numerator}}}{{{(10 ** len(again) - 1) * 10 ** len(fixed)}}}"


def _from_plain(text: str) -> str:
    """Return LaTeX for what programs write: `**`, `*`, `sqrt(x)`, `pi`, `x^(a+b)`."""
    text = text.replace("**", "^")
    for _ in range(_MOST_OPENINGS):
        opens = _OPENS.search(text)
        if opens is None:
            break
        end = _closing(text, opens.end() - 1)
        if end is None:
            break
        head = {"sqrt": r"\sqrt", "cbrt": r"\sqrt[3]"}.get(opens[1], "^")
        text = f"{text[: opens.start()]}{head}{{{text[opens.end() : end]}}}{text[end + 1 :]}"
    text = _FUNCTION.sub(r"\\\1", text)
    text = _NAME.sub(lambda found: "\\" + {"inf": "infty", "infinity": "infty"}.get(found[1], found[1]) + " ", text)
    text = _POWER_OF_DIGITS.sub(r"^{\1}", text)
    return _TIMES.sub(r" \\cdot ", text)


def _closing(text: str, opening: int) -> int | None:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return None


def is_balanced(text: str) -> bool:
    """Return whether each brace closes."""
    return len(closing_braces(text)) == text.replace("\\{", "").count("{") == text.replace("\\}", "").count("}")
