"""A session whose tool takes a while, as one that waits for a simulator or a service does."""

from __future__ import annotations

import asyncio

import gymq


class Count:
    def __init__(self) -> None:
        self.steps = 0


class Stepping(gymq.Resources[gymq.Row, Count]):
    """Counts its steps."""

    max_concurrency = 100_000
    reward_range = (0.0, 1000.0)  # the reward is the number of steps

    async def open(self, row: gymq.Row) -> Count:
        return Count()

    @gymq.tool
    async def step(self, state: Count, duration_s: float) -> int:
        """Take a step, which takes so long."""
        await asyncio.sleep(duration_s)
        state.steps += 1
        return state.steps

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, Count]) -> gymq.Verdict:
        state = request.state
        return gymq.Verdict(float(state.steps))
