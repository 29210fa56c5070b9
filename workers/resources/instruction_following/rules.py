"""The two ways to check instructions: by what they say, and as published."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.instruction_following import languages
from gymq.workers.resources.instruction_following.as_meant import AS_MEANT
from gymq.workers.resources.instruction_following.instructions import INSTRUCTIONS, Check, follows

_OF_LANGUAGE = frozenset({"change_case:english_capital", "change_case:english_lowercase", "language:response_language"})


class AsMeant:
    """Takes keywords as they are; a text that says nothing follows nothing, and one of no language is in none."""

    checks: dict[str, Check] = INSTRUCTIONS | AS_MEANT

    def says_something(self, text: str) -> bool:
        return any(map(str.isalnum, text))

    def follows(self, text: str, name: str, arguments: dict[str, Any]) -> bool:
        is_detected = name not in _OF_LANGUAGE or languages.detect(text) is not None
        return is_detected and follows(self.checks, text, name, arguments)


class Published:
    """Takes keywords for patterns; a text of no language is in each."""

    def says_something(self, text: str) -> bool:
        return True

    def follows(self, text: str, name: str, arguments: dict[str, Any]) -> bool:
        return follows(INSTRUCTIONS, text, name, arguments)


def check_all(
    rule: AsMeant | Published, instructions: list[tuple[str, dict[str, Any] | None]], text: str
) -> list[bool]:
    """For each instruction, a name and its arguments, whether the text follows it."""
    return [rule.follows(text, name, arguments or {}) for name, arguments in instructions]
