"""Reading the scores out of what a reward model says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from gymq.ext.text import code_blocks
from gymq.responses import conclusion

_BRACES_AND_QUOTES = re.compile(r'[{}"\\]')
_MOST_STEPS = 1_000_000  # braces and quotes looked at in one text, so that no text keeps the worker busy for long


@dataclass(frozen=True)
class Scores:
    """What a reward model says of two answers.

    Attributes:
        ranking: from 1, the first is far better, to 6, the second is; it breaks ties.
    """

    score_1: float
    score_2: float
    ranking: float


_NAMES = tuple(field.name for field in fields(Scores))


def last_scores(text: str, default: Scores) -> Scores | None:
    """Return the last scores behind the thoughts, those in a block of JSON before others; None without any.

    Args:
        default: stands in for fields that are missing. One of them has to be there.
    """
    text = conclusion(text)
    blocks = [block.text for block in reversed(code_blocks(text, "json"))]
    found = (_all_scores(place, default) for place in (*blocks, text))
    return next((scores[-1] for scores in found if scores), None)


def published_scores(text: str, default: Scores) -> Scores | None:
    """Return the first scores in a block, also in thoughts, as NeMo Gym does; the last ones where no block has any."""
    for block in code_blocks(text, "json"):
        if found := _all_scores(block.text, default):
            return found[0]
    found = _all_scores(text, default)
    return found[-1] if found else None


def _all_scores(text: str, default: Scores) -> list[Scores]:
    found = (_scores(candidate, default) for candidate in _objects(text))
    return [scores for scores in found if scores is not None]


def _objects(text: str) -> Iterator[str]:
    """What stands between braces, from left to right, without what is nested in it. A brace that never closes is
    skipped.
    """
    steps = 0
    start = text.find("{")
    while start >= 0 and steps < _MOST_STEPS:
        end = None
        depth, in_string, escaped_at = 0, False, -1
        for found in _BRACES_AND_QUOTES.finditer(text, start):
            steps += 1
            position, character = found.start(), found[0]
            if position == escaped_at:
                continue
            if in_string:
                if character == "\\":
                    escaped_at = position + 1
                elif character == '"':
                    in_string = False
            elif character == '"':
                in_string = True
            elif character == "{":
                depth += 1
            elif character == "}":
                depth -= 1
                if depth == 0:
                    end = found.end()
                    break
        if end is not None:
            yield text[start:end]
        start = text.find("{", start + 1 if end is None else end)


def _scores(text: str, default: Scores) -> Scores | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for place in (value.get("overall"), value):
        if isinstance(place, dict):
            numbers = {name: _number(place[name]) for name in _NAMES if name in place}
            if numbers and None not in numbers.values():
                return Scores(**{**vars(default), **numbers})
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
