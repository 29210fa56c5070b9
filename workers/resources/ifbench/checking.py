"""Which rules a text follows, and which of them its variants follow. Runs in processes that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymq.workers.resources.ifbench.arguments import checked
from gymq.workers.resources.ifbench.rules import CUSTOM, RULES
from gymq.workers.resources.instruction_following.texts import ModelMissing, prepare

__all__ = ["check_all", "prepare"]

Rule = tuple[str, Any]  # its name and its arguments


def check_all(rules: Sequence[Rule], text: str) -> tuple[list[bool], list[bool]]:
    """Return for each rule whether the text follows it, and whether one of its variants does."""
    strict, loose = [], []
    others = [variant for variant in variants(text) if variant != text]
    for name, arguments in rules:
        check = rule(name, arguments)
        follows = check is not None and _holds(check, text)
        strict.append(follows)
        loose.append(follows or (check is not None and any(_holds(check, variant) for variant in others)))
    return strict, loose


def rule(name: str, arguments: Any) -> Callable[[str], bool] | None:
    """Return a rule with its arguments; None if there is no such rule, or they make no sense."""
    check = RULES.get(name)
    if check is None or not (arguments is None or isinstance(arguments, dict)):
        return None
    if name.startswith(CUSTOM):
        return check
    try:
        given = checked(arguments or {})
    except ValueError:
        return None
    return lambda text: check(text, **given)


def variants(text: str) -> list[str]:
    """Return a text, and without its first line, its last line and both, each with and without asterisks; not blank."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    found = dict.fromkeys(one for part in cut for one in (part, part.replace("*", "")))
    return [one for one in found if one.strip()]


def _holds(check: Callable[[str], bool], text: str) -> bool:
    try:
        return bool(check(text))
    except (MemoryError, ModelMissing):
        raise
    except Exception:  # arguments that are missing or unknown, a text without a word where one is looked for
        return False
