"""arc_agi: grid puzzles. The first grid of the reply has to equal the expected one, cell by cell."""

from __future__ import annotations

from typing import Any

import pydantic
from gymq.workers.resources.arc_agi.grids import Grid, first_grid, reportable

import gymq
from gymq.responses import assistant_text


class PuzzleRow(gymq.Row):
    expected_output: Grid = pydantic.Field([])
    train: list[dict[str, Grid]] = pydantic.Field([])
    test_input: Grid = pydantic.Field([])
    task_id: str | None = None


class GridPuzzles(gymq.Resources[PuzzleRow]):
    """Reward 1 if the reply's grid is the expected one."""

    reward_range = (0.0, 1.0)

    async def verify(self, request: gymq.VerifyRequest[PuzzleRow]) -> gymq.Verdict:
        expected = request.row.expected_output
        predicted = first_grid(assistant_text(request.response))
        members: dict[str, Any] = {
            "expected_output": reportable(expected),
            "predicted_output": None if predicted is None else reportable(predicted),
            "extraction_successful": predicted is not None,
        }
        return gymq.Verdict(float(predicted == expected), **members)
