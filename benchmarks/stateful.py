"""A counter in a session."""

from __future__ import annotations

import gymq


class Counter:
    value = 0


class Stateful(gymq.Resources[gymq.Row, Counter]):
    max_concurrency = 100_000

    async def open(self, row: gymq.Row) -> Counter:
        return Counter()

    @gymq.tool
    async def add(self, state: Counter, amount: int) -> dict[str, int]:
        """Add to the counter."""
        state.value += amount
        return {"value": state.value}

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, Counter]) -> gymq.Verdict:
        state = request.state
        return gymq.Verdict(float(state.value == 4))
