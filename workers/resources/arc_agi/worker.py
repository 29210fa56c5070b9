"""arc_agi: grid puzzles. The grid that the reply answers with has to equal the expected one, cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pydantic

import gymq
from gymq.ext.text import boxes
from gymq.responses import assistant_text, conclusion

Grid = list[list[int]]

_BOXED = re.compile(r"\\boxed\{(\[\s*\[[\d\s,\[\]]+\]\s*\])\}")
_GRID_CHARACTERS = re.compile(r"[\d\s,\[\]]+")
_OPENING = re.compile(r"\[\s*\[")
_CLOSING = re.compile(r"\]\s*\]")
_WHITE_SPACE = re.compile(r"\s+")
_WHOLE = re.compile(r"\[\s*+\[[\d\s,]*+\](?:\s*+,\s*+\[[\d\s,]*+\])*+\s*+\](?!\s*+\])")

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


def last_grid(text: str) -> Grid | None:
    """Return the last grid in a box or, without any, the last one of the reply, behind the thoughts."""
    text = conclusion(text)
    boxed = [found for box in boxes(text) for found in _WHOLE.findall(box.text)]
    return _first_readable(reversed(boxed)) or _first_readable(reversed(_WHOLE.findall(text)))


def first_grid(text: str) -> Grid | None:
    """Return the first boxed grid that can be read or, without any boxed one, the first bare one."""
    return _first_readable(_BOXED.findall(text) or _bare(text))


def _first_readable(candidates: Iterable[str]) -> Grid | None:
    return next((grid for grid in map(_read, candidates) if grid is not None), None)


def _bare(text: str) -> Iterator[str]:
    """Every stretch of the text that looks like a grid.

    In a run of the characters a grid is made of, a stretch reaches from the first two opening brackets to the last two
    closing ones. One regular expression for both ends would need quadratic time on brackets that never close.
    """
    for run in _GRID_CHARACTERS.findall(text):
        opening = _OPENING.search(run)
        closing = _CLOSING.search(run[::-1])
        if opening and closing:
            content_end = len(run) - closing.end()
            if opening.end() < content_end:
                yield run[opening.start() : len(run) - closing.start()]


def _read(candidate: str) -> Grid | None:
    """Return the grid that a candidate writes as JSON; None if it is none, or its first row is empty."""
    try:
        grid = json.loads(_WHITE_SPACE.sub("", candidate))
    except (ValueError, RecursionError):  # also: more digits than Python converts
        return None
    is_grid = all(isinstance(row, list) and all(isinstance(cell, int) for cell in row) for row in grid)
    return grid if is_grid and grid[0] else None
