"""The instructions by name, and the two ways to check them: by what they say, and as published."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.instruction_following import copies, formats, keywords, languages, lengths, words
from gymq.workers.resources.instruction_following.arguments import Check
from gymq.workers.resources.instruction_following.as_meant import AS_MEANT
from gymq.workers.resources.instruction_following.texts import ModelMissing

INSTRUCTIONS = copies.CHECKS | formats.CHECKS | keywords.CHECKS | languages.CHECKS | lengths.CHECKS | words.CHECKS


class AsMeant:
    """Takes keywords as they are; a text that says nothing follows nothing, and one of no language is in none."""

    checks: dict[str, Check] = INSTRUCTIONS | AS_MEANT

    def says_something(self, text: str) -> bool:
        return any(map(str.isalnum, text))

    def follows(self, text: str, name: str, arguments: dict[str, Any]) -> bool:
        is_detected = name not in languages.CHECKS or languages.detect(text) is not None
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


def follows(checks: dict[str, Check], text: str, name: str, arguments: dict[str, Any]) -> bool:
    """Whether the text follows an instruction. One that is unknown or ill-formed is never followed.

    An argument that is null counts as not given.
    """
    check = checks.get(name)
    if check is None:
        return False
    try:
        return check(text, **{key: value for key, value in arguments.items() if value is not None})
    except (MemoryError, ModelMissing):
        raise
    except Exception:  # arguments that are missing, unknown or of a wrong type, malformed patterns
        return False
