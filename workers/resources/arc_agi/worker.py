"""arc_agi: grid puzzles. The grid that the reply answers with has to equal the expected one, cell by cell."""

from __future__ import annotations

import json
from typing import Any

import pydantic
from gymq.workers.resources.arc_agi.rules import Grid, first_grid, last_grid

import gymq
from gymq.responses import assistant_text

_LARGEST = 2**63 - 1


class PuzzleRow(gymq.Row):
    expected_output: Grid = pydantic.Field([])
    train: list[dict[str, Grid]] = pydantic.Field([])
    test_input: Grid = pydantic.Field([])
    task_id: str | None = None


class GridPuzzles(gymq.Resources[PuzzleRow]):
    """Reward 1 if the reply's grid is the expected one."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: the first grid counts, as the peer has it

    async def start(self) -> None:
        self._grid = last_grid if self.options.hardened else first_grid

    async def verify(self, request: gymq.VerifyRequest[PuzzleRow]) -> gymq.Verdict:
        expected = request.row.expected_output
        predicted = self._grid(assistant_text(request.response))
        members: dict[str, Any] = {
            "expected_output": reportable(expected),
            "predicted_output": None if predicted is None else reportable(predicted),
            "extraction_successful": predicted is not None,
        }
        return gymq.Verdict(float(predicted == expected), **members)


def reportable(grid: Grid) -> Grid | str:
    """Return the grid as a message can carry it: as JSON text if a number is too large for one."""
    if all(abs(cell) <= _LARGEST for row in grid for cell in row):
        return grid
    return json.dumps(grid)
