"""The two ways to look for references in a reply: as the question means them, and as RULER does."""

from __future__ import annotations

from typing import Protocol

from gymq.text import Words, conclusion


class ReferenceRule(Protocol):
    """Looks for references."""

    def found(self, reply: str, references: list[str]) -> list[bool]:
        """Return for each reference whether the reply has it."""


class WholeWords:
    """Takes a reference that stands by itself behind the thoughts, as a word, a name or a number."""

    def found(self, reply: str, references: list[str]) -> list[bool]:
        words = Words(conclusion(reply))
        return [reference in words for reference in references]


class Published:
    """Takes a reference anywhere, also inside words and numbers and in thoughts, in any case."""

    def found(self, reply: str, references: list[str]) -> list[bool]:
        reply = reply.strip().lower()
        return [reference.lower() in reply for reference in references]
