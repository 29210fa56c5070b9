"""The verdicts on two answers, and the two ways to read one: as `Labels` do, and as NeMo Gym does."""

from __future__ import annotations

import re

from gymq.judge import Labels

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
LABELS = Labels({verdict: rf"\[\[{verdict}\]\]" for verdict in VERDICTS})

_LABEL = re.compile(r"\[\[([AB<>=]+)\]\]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def published_verdict(text: str) -> str | None:
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
