"""Reading verdicts on two answers."""

from __future__ import annotations

import re

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")

_LABEL = re.compile(r"\[\[([AB<>=]+)\]\]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def verdict_in(text: str) -> str | None:
    """Return the label that a judge's text has; None if it has none, several different ones or an unknown one."""
    found = set(_LABEL.findall(text))
    return found.pop() if len(found) == 1 and found <= set(VERDICTS) else None


def sanitized(text: str) -> str:
    """Return the text without NUL characters and with U+FFFD for halves of surrogate pairs."""
    return _SURROGATE.sub("\ufffd", text.replace("\0", ""))


def is_win(verdict: str | None) -> bool:
    """Return whether A is better."""
    return verdict in ("A>B", "A>>B")


def is_loss(verdict: str | None) -> bool:
    """Return whether B is better."""
    return verdict in ("B>A", "B>>A")
