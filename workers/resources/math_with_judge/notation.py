"""Answers in one notation: plain text, Unicode and LaTeX in dress become LaTeX that math-verify reads rightly."""

from __future__ import annotations

import re
import unicodedata

from gymq.workers.resources.string_match.measures import unit_of

from gymq.ext.text import SPACE, closing_braces, undressed

_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b\u207f\u2071]+")
_LOWERED = re.compile("[\u2080-\u2089]+")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e]")
_COMMANDS = (
    *(("×", "times"), ("·", "cdot"), ("⋅", "cdot"), ("÷", "div"), ("π", "pi"), ("∞", "infty"), ("≤", "le")),
    *(("≥", "ge"), ("≠", "ne"), ("±", "pm"), ("∪", "cup"), ("∩", "cap"), ("∈", "in"), ("∅", "emptyset")),
    *(("θ", "theta"), ("α", "alpha"), ("β", "beta")),
)
_SIGNS = str.maketrans(
    {
        **{chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)},  # of full width
        **dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        **{sign: f"\\{name} " for sign, name in _COMMANDS},
        "\u00b0": r"^{\circ}",
        **dict.fromkeys("\u2018\u2019\u2032", "'"),
        "\u2033": "''",
    }
)
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp"
_OF_DEGREES = r"\\(sin|cos|tan|cot|sec|csc) ?"
_DEGREES = r"(\d{1,4}(?:\.\d{1,4})?) ?\^ ?(?:\{ ?\\circ ?\}|\\circ)"
_REWRITTEN = (
    (re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])"), ""),
    (
        re.compile(r"\\(?:to|(?:long)?rightarrow|(?:Long)?[Rr]ightarrow|implies|mapsto)(?![A-Za-z])|[\u2192\u21d2]"),
        " = ",
    ),
    (re.compile(rf"\\(?:mathrm|operatorname)\s*\{{\s*({_FUNCTIONS}|max|min|gcd|lcm)\s*\}}"), r"\\\1"),
    (re.compile(r"\\(?:mathrm|mathit|mathbf|operatorname|rm|mathsf)\s*\{\s*([A-Za-z])\s*\}"), r"\1"),
    (re.compile(r"(?<=\d)(?:\\[,;:! ]|\{,\}|[\u2009\u202f\u00a0'](?=\d{3}))+(?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<![\d.] )(?<![\d.])\d{1,3}(?: \d{3})+(?! ?[\d.])"), lambda found: found[0].replace(" ", "")),
    (SPACE, " "),
    (re.compile(r"[\u2009\u200a\u202f\u00a0]"), " "),
    (re.compile(r"\\varnothing(?![A-Za-z])|\\\{ ?\\\}"), r"\\emptyset "),
    (re.compile(r"\\prime(?![A-Za-z]) ?"), "'"),
    (re.compile(r"\^ ?(?:\{ ?('{1,9}) ?\}|(?='))"), r"\1"),
    (re.compile(r"(?<![\\A-Za-z])([AaPp])\. ?[Mm]\."), r"\1m"),
    (re.compile(r"(?<=\d):00 ?((?:\\text ?\{ ?)?[AaPp]m\b)", re.IGNORECASE), r" \1"),
    (re.compile(r"\\text ?\{ ?percent ?\}|\bpercent\b"), r"\\%"),
    (re.compile(r"(?<= )!= ?"), r"\\ne "),
    (re.compile(r"(?<![\\A-Za-z])log ?\( ?([^(),]{1,30}), ?(\d{1,3}) ?\)"), r"\\log_{\2}(\1)"),
    (re.compile(r", ?(?:\\text ?\{ ?and ?\}|and\b)"), ","),
    (
        re.compile(rf"{_OF_DEGREES}(?:\\left)?(?:\( ?{_DEGREES} ?(?:\\right)?\)|\{{ ?{_DEGREES} ?\}})"),
        r"\\\1(\\frac{\2\3\\pi}{180})",
    ),
    (re.compile(rf"{_OF_DEGREES}{_DEGREES}"), r"\\\1(\\frac{\2\\pi}{180})"),
    (
        re.compile(r"(?<=\.)(\d{0,20}?)((\d)\3{2,20}|(\d{2,6})\4{1,20}) ?(?:\.{3}|\u2026|\\[lc]?dots(?![A-Za-z]))"),
        lambda found: rf"{found[1]}\overline{{{found[3] or found[4]}}}",
    ),
)
_ROOT = re.compile(r"([\u221a\u221b\u221c]|(?<![\\A-Za-z])sqrt)\s*(?:\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-z]))")
_INDEX = {"\u221a": "", "\u221b": "[3]", "\u221c": "[4]", "sqrt": ""}
_SCALE = re.compile(r"(?<=\d) ?(\\text ?\{)? ?(thousand|million|billion|trillion)\b ?")
_ZEROS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SAYS = re.compile(r"\\text ?\{([^{}]*)\}")
_SAYS_AT_ITS_END = re.compile(r"\b(?:is|are|equals|be|get|have|answer):?\Z|:\Z", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t\r\n]+")
_REPEATING = re.compile(
    r"(?<![\d.])(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{(\d+)\}|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?|\((\d+)\))"
)
_FUNCTION = re.compile(rf"(?<![\\A-Za-z])({_FUNCTIONS})(?![A-Za-z])")
_NAME = re.compile(r"(?<![\\A-Za-z])(pi|theta|alpha|beta|infinity|inf|oo)(?![A-Za-z])")
_INFINITE = frozenset({"infinity", "inf", "oo"})
_CHOSEN = r"(\d{1,4}|[a-z]), ?(\d{1,4}|[a-z])"
_BINOMIALS = (
    re.compile(rf"(?<![\\A-Za-z])(?:C|nCr|binom) ?\( ?{_CHOSEN} ?\)"),
    re.compile(r"(?:\{ ?\} ?)?[\^_] ?\{? ?(\d{1,4}|[a-z]) ?\}? ?C ?_ ?\{? ?(\d{1,4}|[a-z]) ?\}?"),
    re.compile(r"(?<![\\A-Za-z])C ?_ ?\{? ?(\d{1,4}|[a-z]) ?\}? ?\^ ?\{? ?(\d{1,4}|[a-z]) ?\}?"),
    re.compile(r"\{? ?(\d{1,4}|[a-z]) ?\\choose ?(\d{1,4}|[a-z]) ?\}?"),
)
_OPENS = re.compile(r"(?<![\\A-Za-z])(sqrt|cbrt|abs)\s*\(|\^\s*\(")
_HEADS = {"sqrt": (r"\sqrt{", "}"), "cbrt": (r"\sqrt[3]{", "}"), "abs": ("|", "|"), None: ("^{", "}")}
_MOST_OPENINGS = 50
_TIMES = re.compile(r"(?<=[\w)}\]])\s*\*\s*(?=[\w({\[\\])")
_PRODUCT = re.compile(r"(?<=\d)([a-z]{2,3})(?![A-Za-z(])")
_POWER_OF_DIGITS = re.compile(r"\^\s*(-?\d{2,}|-\d)")


def tidy(answer: str) -> str:
    """Return an answer in LaTeX, without the dress around it."""
    text = _RAISED.sub(lambda found: f"^{{{_compatible(found[0])}}}", answer)
    text = _LOWERED.sub(lambda found: f"_{{{_compatible(found[0])}}}", text)
    text = _VULGAR.sub(lambda found: rf"\frac{{{_compatible(found[0])}}}".replace("\u2044", "}{"), text)
    text = _BLANKS.sub(" ", undressed(text.translate(_SIGNS)))
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    text = _ROOT.sub(lambda found: rf"\sqrt{_INDEX[found[1]]}{{{found[2] or found[3]}}}", text)
    text = _SCALE.sub(lambda found: rf" \cdot 10^{{{_ZEROS[found[2]]}}} {found[1] or ''}", text)
    text = _SAYS.sub(_unless_it_introduces, text).strip()
    text = undressed(_without_stop(text))
    text = _REPEATING.sub(_fraction, text)
    return _PRODUCT.sub(_as_product, _from_plain(text)).strip()


def with_binomials(text: str) -> str:
    """Return a formula with `\\binom` for the other ways to write one. `C(3,0)` may also be a point."""
    for pattern in _BINOMIALS:
        text = pattern.sub(r"\\binom{\1}{\2}", text)
    return text


def _compatible(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs)


def _as_product(found: re.Match[str]) -> str:
    """Return letters behind a number as factors, unless they are a unit: the library takes some of them for one."""
    return found[0] if unit_of(found[1]) else r" \cdot " + r" \cdot ".join(found[1])


def _unless_it_introduces(found: re.Match[str]) -> str:
    """Return nothing for words such as `The answer is`."""
    said = found[1].strip()
    return found[0] if said and not _SAYS_AT_ITS_END.search(said) else ""


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
        before, behind = _HEADS[opens[1]]
        text = f"{text[: opens.start()]}{before}{text[opens.end() : end]}{behind}{text[end + 1 :]}"
    text = _FUNCTION.sub(r"\\\1", text)
    text = _NAME.sub(lambda found: "\\" + ("infty" if found[1] in _INFINITE else found[1]) + " ", text)
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
