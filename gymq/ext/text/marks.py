"""What is put around an answer without changing it: fonts and delimiters of LaTeX, marks of Markdown, quotes."""

from __future__ import annotations

import re

_TAKES_WHAT_FOLLOWS = (
    r"\\(?:bf|rm|it|displaystyle|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])"
    r"|\\(?:text)?color\s*+\{[^{}]*\}"
)
FONT = re.compile(
    r"(?:\\(?:text(?:bf|it|rm|sf|tt|normal|sc|up)?|math(?:rm|bf|it|sf|tt|bb|cal|scr|frak|normal)|emph|underline"
    rf"|boldsymbol|bm|[mh]box|operatorname|boxed|fbox)(?![A-Za-z])|(?P<switch>{_TAKES_WHAT_FOLLOWS}))\s*+"
)
SPACE = re.compile(r"(?<!\\)\\(?:[,;:! ]|q?quad(?![A-Za-z]))|~(?!~)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)

# The longer of two marks that begin alike comes first.
_PAIRS = (
    *(("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("```", "```"), ("`", "`")),
    *(("***", "***"), ("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("~~", "~~")),
    *(('"', '"'), ("''", "''"), ("'", "'"), ("``", "''"), ("`", "'")),
    *(("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"), ("\u201e", "\u201c")),
)


def closing_braces(text: str) -> dict[int, int]:
    """Return for each opening brace that closes where it does. An escaped brace is a sign like any other."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            closed[opened.pop()] = brace.start()
    return closed


def undressed(text: str) -> str:
    """Return the text without the blanks and the marks around all of it, however many there are."""
    closed = closing_braces(text)
    start, end = trimmed(text, 0, len(text))
    while (inner := _inner(text, start, end, closed)) is not None:
        start, end = trimmed(text, *inner)
    return text[start:end]


def _inner(text: str, start: int, end: int, closed: dict[int, int]) -> tuple[int, int] | None:
    """Return where the text within the outermost mark is; None if none is around all of it."""
    font = FONT.match(text, start, end)
    brace = start if font is None else font.end()
    if brace < end and closed.get(brace) == end - 1:
        return brace + 1, end - 1
    if font is not None and brace > start and not text.startswith("{", brace):
        return (brace, end) if font["switch"] else None
    for opening, closing in _PAIRS:
        first, last = start + len(opening), end - len(closing)
        if (
            last > first
            and text.startswith(opening, start)
            and text.startswith(closing, last)
            and text.find(closing, first, end) == last
        ):
            return first, last
    return None


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where a part of a text begins and ends without blanks around it."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
