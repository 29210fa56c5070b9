"""The part of a text that a pattern points at."""

from __future__ import annotations

import re
from collections import deque


def extract(pattern: str, text: str) -> str:
    """Return the last match's first group that is not blank, or else the whole match, trimmed.

    A dot matches newlines too; `^` and `$` match at lines. Without a match, and with an invalid pattern, it is the text
    as it is.
    """
    try:
        compiled = re.compile(pattern, re.DOTALL | re.MULTILINE)
    except (re.error, OverflowError, RecursionError):
        return text
    matches = deque(compiled.finditer(text), maxlen=1)
    if not matches:
        return text
    last = matches[0]
    return next((group for group in last.groups() if group and group.strip()), last[0]).strip()
