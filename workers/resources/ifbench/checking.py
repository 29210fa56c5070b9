"""Which rules a text follows, and which of them its variants follow. Runs in processes that can be killed.

The rules are the 58 of IFBench (Pyatkin et al., 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymq.workers.resources.ifbench import counts, custom, formats, sequences, words
from gymq.workers.resources.ifbench.as_meant import AS_MEANT
from gymq.workers.resources.ifbench.texts import Rule
from gymq.workers.resources.instruction_following.texts import ModelMissing

# Positions, which count from the end if they are negative; the others of these have no meaning as zero.
POSITIONS = {"n": False, "m": False, "n_start": True, "n_end": False}
NUMBERS = frozenset({"min_words", "max_words", "N", "small_n", "percentage"})
NOT_EMPTY = frozenset(
    {"word", "keyword", "keyword1", "keyword2", "keyword3", "keyword4", "keyword5", "prompt_to_repeat"}
)

RULES = counts.RULES | custom.RULES | formats.RULES | sequences.RULES | words.RULES

RULE_SETS: dict[str, Mapping[str, Rule]] = {"as meant": RULES | AS_MEANT, "published": RULES}


def check_all(rule_set: str, rules: Sequence[tuple[str, Any]], text: str) -> tuple[list[bool], list[bool]]:
    """Return for each rule, a name with arguments, whether a text follows it, and whether one of its variants does."""
    strict, loose = [], []
    others = [variant for variant in variants(text) if variant != text]
    for name, arguments in rules:
        check = rule(RULE_SETS[rule_set], name, arguments)
        follows = check is not None and _holds(check, text)
        strict.append(follows)
        loose.append(follows or (check is not None and any(_holds(check, variant) for variant in others)))
    return strict, loose


def rule(checks: Mapping[str, Rule], name: str, arguments: Any) -> Callable[[str], bool] | None:
    """Return a rule with its arguments; None if there is no such rule, or they make no sense."""
    check = checks.get(name)
    if check is None or not (arguments is None or isinstance(arguments, dict)):
        return None
    if name in custom.RULES:  # they ignore all arguments
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


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that are null.

    Raises:
        ValueError: one of them has a type or a value with which no text can be checked.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    wrong = [name for name, value in given.items() if not _makes_sense(name, value)]
    if wrong:
        raise ValueError(f"{wrong[0]}: {given[wrong[0]]!r}")
    return given


def _makes_sense(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if name in POSITIONS:
        return isinstance(value, int) and (value != 0 or POSITIONS[name])
    if name in NUMBERS:
        return isinstance(value, int | float) and value >= 0
    return isinstance(value, str) and (bool(value) or name not in NOT_EMPTY)
