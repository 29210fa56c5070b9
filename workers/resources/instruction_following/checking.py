"""Which instructions a text follows. Runs in processes that can be killed."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.instruction_following.instructions import INSTRUCTIONS
from gymq.workers.resources.instruction_following.texts import ModelMissing


def check_all(instructions: list[tuple[str, dict[str, Any] | None]], text: str) -> list[bool]:
    """For each instruction, a name and its arguments, whether the text follows it."""
    return [follows(text, name, arguments or {}) for name, arguments in instructions]


def follows(text: str, name: str, arguments: dict[str, Any]) -> bool:
    """Whether the text follows an instruction. One that is unknown or ill-formed is never followed.

    An argument that is null counts as not given.
    """
    check = INSTRUCTIONS.get(name)
    if check is None:
        return False
    try:
        return check(text, **{key: value for key, value in arguments.items() if value is not None})
    except (MemoryError, ModelMissing):
        raise
    except Exception:  # arguments that are missing, unknown or of a wrong type, malformed patterns
        return False
