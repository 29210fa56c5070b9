"""polymath: mathematics in many languages, verified as in math_with_judge. Rows have a language and a weight."""

from __future__ import annotations

import pydantic
from gymq.workers.resources.math_with_judge.verifier import MathRow, MathVerifier

import gymq


class PolymathRow(MathRow):
    weight: pydantic.FiniteFloat | None = None  # of the task in weighted means
    language: str | None = None


class Polymath(MathVerifier[PolymathRow]):
    """Reward 1 if the reply's answer is equivalent to the expected one, in whatever language."""

    async def verify(self, request: gymq.VerifyRequest[PolymathRow]) -> gymq.Verdict:
        verdict = await super().verify(request)
        verdict.fields.update(weight=request.row.weight, language=request.row.language)
        return verdict
