"""The two ways to look for references in a reply: as the question means them, and as RULER does."""

from __future__ import annotations

from gymq.text import Words, conclusion


def whole_words(reply: str, references: list[str]) -> list[bool]:
    """Return for each reference whether it stands by itself behind the thoughts, as a word, a name or a number."""
    words = Words(conclusion(reply))
    return [reference in words for reference in references]


def substrings(reply: str, references: list[str]) -> list[bool]:
    """Return for each reference whether the reply has it, also inside words and numbers and in thoughts."""
    reply = reply.strip().lower()
    return [reference.lower() in reply for reference in references]
