"""The rows of docs/compatibility.md: the test that tries something records what came out.

A test fails if the page says something else, so that the page is what the tests found. With
`GYMQ_WRITE_COMPATIBILITY=1` they write it.
"""

import os
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
WRITE = "GYMQ_WRITE_COMPATIBILITY"


class Row(NamedTuple):
    """One line of the table; `what` and `version` name it."""

    what: str
    version: str
    tried_with: str
    result: str

    def __str__(self) -> str:
        return f"| {' | '.join(self)} |"


def record(what: str, version: str, tried_with: str, result: str) -> None:
    """Compare a result with the page, or write it there."""
    row = Row(what, version, tried_with, result)
    found = rows()
    if os.environ.get(WRITE) == "1":
        found = sorted([one for one in found if one[:2] != row[:2]] + [row])
        text = PAGE.read_text()
        head, rule, _ = text.partition("| --- | --- | --- | --- |\n")
        PAGE.write_text(head + rule + "".join(f"{one}\n" for one in found))
        return
    assert row in found, f"docs/compatibility.md says something else; {WRITE}=1 writes: {row}"


def rows() -> list[Row]:
    """The rows of the page."""
    lines = PAGE.read_text().partition("| --- | --- | --- | --- |\n")[2].splitlines()
    return [Row(*(cell.strip() for cell in line.strip("|").split(" | "))) for line in lines if line.startswith("|")]
