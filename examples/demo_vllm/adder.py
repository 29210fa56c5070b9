"""An environment with one tool that adds; the policy calls it, then says the sum."""

from __future__ import annotations

import re

import gymq

_BOXED = re.compile(r"\\boxed\{(-?\d+)\}")


class SumRow(gymq.Row):
    expected_sum: int


class Adder(gymq.Resources[SumRow]):
    """Reward 1 if the tool was called and the boxed number is the sum."""

    @gymq.tool
    async def add(self, a: int, b: int) -> str:
        """Add two integers."""
        return str(a + b)

    async def verify(self, request: gymq.VerifyRequest[SumRow]) -> gymq.Verdict:
        said = _BOXED.findall(request.reply_text)
        is_right = bool(said) and int(said[-1]) == request.row.expected_sum
        return gymq.Verdict(float(is_right and bool(request.function_calls)), said=said[-1] if said else None)
