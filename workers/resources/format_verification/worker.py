"""format_verification: replies that keep to a format of text, or to a style of citation. Patterns of the row decide."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from gymq.workers.resources.format_verification.formats import MalformedPattern, check_lines, check_markers

import gymq
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
