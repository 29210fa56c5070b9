"""An environment with state: the reward is 1 if the session's sum is what the row expects."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import gymq


class Row(gymq.Row):
    expected: int
    marker: Path | None = None  # left by the first process that dies for this row


@dataclass
class State:
    row: Row
    total: int = 0


class Adding(gymq.Resources[Row, State]):
    """Adds up what the tools are given."""

    async def open(self, row: Row) -> State:
        return State(row)

    @gymq.tool
    async def add(self, state: State, amount: int) -> int:
        """Add to the sum."""
        state.total += amount
        return state.total

    @gymq.tool
    async def add_and_die(self, state: State, amount: int) -> int:
        """Add to the sum; the first time the whole process is killed."""
        state.total += amount
        marker = state.row.marker
        if marker is not None and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return state.total

    async def verify(self, request: gymq.VerifyRequest[Row, State]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(reward=float(state.total == request.row.expected), total=state.total)
