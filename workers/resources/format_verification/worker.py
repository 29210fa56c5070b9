"""format_verification: replies that keep to a format of text, or to a style of citation. Patterns of the row decide."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pydantic

import gymq
from gymq.errors import GymqError
from gymq.processes import ComputeLimits, CpuTimeUsedUp


class LineVerifier(pydantic.BaseModel):
    type: Literal["regex", "inline_prose"]
    verify_regex: list[str] = []
    verify_min_matches: int = 1


class MarkerVerifier(pydantic.BaseModel):
    type: Literal["string_match"]
    expected_markers: list[str] = []
    patterns: list[str] = []


class FormatRow(gymq.Row):
    verifier: Annotated[LineVerifier | MarkerVerifier, pydantic.Discriminator("type")]


class FormatVerification(gymq.Resources[FormatRow]):
    """Reward 1 if enough lines of the reply have the row's format, or if it has the row's markers and no others."""

    reward_range = (0.0, 1.0)

    # For patterns of rows, which may need exponential time on an unlucky reply.
    compute_limits = ComputeLimits(cpu_s=10.0, timeout_s=200.0)

    async def verify(self, request: gymq.VerifyRequest[FormatRow]) -> gymq.Verdict:
        try:
            details = await self._check(request.row.verifier, request.reply_text)
        except MalformedPattern as error:
            raise gymq.InvalidTask(str(error)) from None
        except (CpuTimeUsedUp, MemoryError):
            limit = f"{self.compute_limits.cpu_s:g} s of processor time"
            raise gymq.InvalidTask(
                f"the row's patterns were not decided within {limit}; nothing is known of it"
            ) from None
        return gymq.Verdict(float(details["passed"]), match_details=details)

    async def _check(self, verifier: LineVerifier | MarkerVerifier, reply: str) -> dict[str, Any]:
        if isinstance(verifier, LineVerifier):
            return await self.compute(check_lines, reply, verifier.verify_regex, verifier.verify_min_matches)
        return await self.compute(check_markers, reply, verifier.expected_markers, verifier.patterns)


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
