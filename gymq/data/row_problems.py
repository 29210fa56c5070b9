"""Rows that cannot be used, reported by what is wrong with them: each kind once, with the first places and a count."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NUMBER = re.compile(r"\d+")


@dataclass
class _Kind:
    text: str  # of its first row
    places: list[str] = field(default_factory=list)
    count: int = 0


class RowProblems:
    """Counts unusable rows. Its memory does not grow with them.

    Attributes:
        count: unusable rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[str, _Kind] = {}
        self._of_other_kinds = 0

    def add(self, place: str, problem: str) -> None:
        """Count a row: its place, such as `FILE:LINE`, and one sentence about it."""
        self.count += 1
        key = _NUMBER.sub("0", problem.partition(", not ")[0])  # rows differ in the value that is refused
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) == 20:
                self._of_other_kinds += 1
                return
            kind = self._kinds[key] = _Kind(problem)
        kind.count += 1
        if len(kind.places) < 3:
            kind.places.append(place)

    def lines(self) -> list[str]:
        """Return a line for each kind of problem: places and the sentence about the first of its rows."""
        lines = [f"{_listed(kind)}: {kind.text}" for kind in self._kinds.values()]
        return [*lines, f"{self._of_other_kinds:,} more have other problems"] if self._of_other_kinds else lines

    def report(self, num_rows: int) -> str:
        """Return a message about all of them, of so many rows."""
        if self.count == 1:
            return self.lines()[0]
        return "\n".join([f"{self.count:,} of {num_rows:,} rows cannot be used:", *self.lines()])


def _listed(kind: _Kind) -> str:
    first, *others = kind.places
    file, colon, _ = first.rpartition(":")
    shown = ", ".join([first, *(place.removeprefix(f"{file}{colon}").strip() for place in others)])
    more = kind.count - len(kind.places)
    return f"{shown} and {more:,} more" if more else shown
