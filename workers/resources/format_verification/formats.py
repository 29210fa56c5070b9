"""Checking the format of a reply with the row's patterns.

They may need exponential time on an unlucky reply, so this runs in a process that can be killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gymq.errors import GymqError


class MalformedPattern(GymqError, ValueError):
    """A pattern of a row that does not compile."""


def check_lines(reply: str, patterns: list[str], min_matches: int) -> dict[str, Any]:
    """Return whether enough lines have a match of any pattern. Only line feeds end a line.

    Raises:
        MalformedPattern: one does not compile.
    """
    compiled = _compiled(patterns)
    count = sum(any(pattern.search(line) for pattern in compiled) for line in reply.split("\n"))
    return {"matching_lines": count, "min_matches": min_matches, "passed": count >= min_matches}


def check_markers(reply: str, expected: list[str], patterns: list[str]) -> dict[str, Any]:
    """Return whether the reply has all expected markers, and whether the patterns match nothing else in it.

    Raises:
        MalformedPattern: one does not compile.
    """
    compiled = _compiled(patterns)
    known = frozenset(expected)
    missing = [marker for marker in expected if marker not in reply]
    spurious = [found[0] for pattern in compiled for found in pattern.finditer(reply) if found[0] not in known]
    return {"expected": expected, "missing": missing, "spurious": spurious, "passed": not missing and not spurious}


def _compiled(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            raise MalformedPattern(f"the pattern {pattern!r:.200} does not compile: {error}") from None
    return compiled
