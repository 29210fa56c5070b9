"""Two environments: one that keeps nothing and does what the row asks for, and one with state."""

import asyncio
from dataclasses import dataclass
from typing import Any

import gymq


class Grader(gymq.Resources[gymq.Row]):
    """The verdict is what the row's `verdict` says; without one the reward is 1."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        fields: dict[str, Any] = dict((request.row.model_extra or {}).get("verdict") or {})
        fails = fields.pop("fails", None)
        if fails is not None:
            raise gymq.RolloutError(
                gymq.FailureClass(fails["class"]), "as the row asks", retryable=fails.get("retryable")
            )
        if fields.pop("raises", False):
            raise ValueError("a bug")
        await asyncio.sleep(fields.pop("seconds", 0))
        return gymq.Verdict(fields.pop("reward", 1.0), **fields)


@dataclass
class Sum:
    total: int


class CountRow(gymq.Row):
    start: int = 0
    expected: int = 0


class Counter(gymq.Resources[CountRow, Sum]):
    """A sum per session; the reward is 1 if it is what the row expects."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_closed = 0

    async def open(self, row: CountRow) -> Sum:
        return Sum(row.start)

    async def close(self, state: Sum) -> None:
        self.num_closed += 1

    @gymq.tool
    async def add(self, state: Sum, amount: int) -> dict[str, int]:
        """Add to the sum."""
        state.total += amount
        return {"total": state.total}

    async def verify(self, request: gymq.VerifyRequest[CountRow, Sum]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(float(state.total == request.row.expected), total=state.total)
