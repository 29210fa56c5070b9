"""The two ways to find the grid that a reply answers with: the last one, and the first one as NeMo Gym does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from gymq.text import boxes, conclusion

Grid = list[list[int]]

_BOXED = re.compile(r"\\boxed\{(\[\s*\[[\d\s,\[\]]+\]\s*\])\}")
_GRID_CHARACTERS = re.compile(r"[\d\s,\[\]]+")
_OPENING = re.compile(r"\[\s*\[")
_CLOSING = re.compile(r"\]\s*\]")
_WHITE_SPACE = re.compile(r"\s+")
_WHOLE = re.compile(r"\[\s*+\[[\d\s,]*+\](?:\s*+,\s*+\[[\d\s,]*+\])*+\s*+\](?!\s*+\])")


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
