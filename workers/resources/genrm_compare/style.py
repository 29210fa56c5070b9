"""How densely a text is marked up."""

from __future__ import annotations

import re

_MARKS = (
    re.compile(r"^#{1,6}\s", re.MULTILINE),  # headers
    re.compile(r"^[ \t]*(?:\d+\.|[-*+])\s", re.MULTILINE),  # items of lists
    re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),  # bold spans
    re.compile("[\U0001f100-\U0001f2ff\U0001f300-\U0001faff\u2600-\u27bf\u24c2]"),  # emoji
)


def density(text: str) -> float:
    """Headers, list items, bold spans and emoji per character, outside of code blocks; 0 for an empty text."""
    text = _without_code(text)
    length = len(text.strip())
    return sum(len(mark.findall(text)) for mark in _MARKS) / length if length else 0.0


def _without_code(text: str) -> str:
    kept = []
    end = 0
    while (start := text.find("```", end)) >= 0 and (closing := text.find("```", start + 3)) >= 0:
        kept.append(text[end:start])
        end = closing + 3
    return "".join(kept) + text[end:]
