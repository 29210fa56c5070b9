"""Fields of rows and verdicts, of which a reader makes columns of the table of rollouts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gymq.data.rows import PARAMS
from gymq.runs.outcome_fields import own_fields

MOST_COLUMNS = 200  # of a run

Detail = bool | int | float | str


def details_of(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Detail]:
    """Return the fields of a verdict and of its row by path, such as `verdict.accuracy`; of a list its length."""
    found: dict[str, Detail] = {}
    for origin, fields in (("verdict", verdict), ("row", own_fields(row))):
        for path, value in _leaves(fields, f"{origin}.", 3):
            if len(found) == 40:
                return found
            found[sys.intern(path)] = value  # the rollouts of a run have the same ones
    return found


def _leaves(fields: Mapping[str, Any], prefix: str, levels: int) -> Iterator[tuple[str, Detail]]:
    for name, value in fields.items():
        path = f"{prefix}{name}"
        if name == PARAMS or value is None or len(path) > 80:
            continue
        if isinstance(value, dict) and levels > 1:
            yield from _leaves(value, f"{path}.", levels - 1)
        elif isinstance(value, dict | list):
            yield path, f"{{{len(value)}}}" if isinstance(value, dict) else f"[{len(value)}]"
        elif isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 64):
            yield path, value
        else:
            yield path, str(value)[:80]
