"""Paths such as `boat.crew[0].role`, and whether data has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_COLUMN = "csv::"
_HEADERS = "csv_headers"


def has_path(data: Any, path: str) -> bool:
    """Return whether a path leads somewhere; what it leads to does not matter."""
    try:
        steps = _steps(path)
    except ValueError:
        return False
    places = [data]
    for number, step in enumerate(steps, 1):
        found = (after for place in places for after in _after(place, step, is_last=number == len(steps)))
        # YAML can name the same list many times over.
        places = list({id(place): place for place in found}.values())
    return bool(places)


def _steps(path: str) -> list[str]:
    """Return the steps of a path.

    Raises:
        ValueError: a bracket is not closed.
    """
    if path.startswith(_COLUMN):
        return [path]
    steps: list[str] = []
    step, quoted, position = "", False, 0
    while position < len(path):
        character = path[position]
        if character == "`":
            quoted = not quoted
        elif quoted or character not in ".[":
            step += character
        else:
            steps.append(step)
            step = ""
            if character == "[":
                end = path.index("]", position)
                steps.append(path[position : end + 1])
                position = end
        position += 1
    return [step for step in [*steps, step] if step]


def _after(place: Any, step: str, *, is_last: bool) -> Iterator[Any]:
    """Yield where a step leads from a place."""
    if isinstance(place, dict) and _HEADERS in place and step.startswith(_COLUMN):
        headers = place[_HEADERS]
        if is_last and isinstance(headers, list) and step.removeprefix(_COLUMN) in headers:
            yield step
    elif step == "*":
        if isinstance(place, list):
            yield from place
    elif step.startswith("[") and step.endswith("]"):
        index = _index(step[1:-1])
        if isinstance(place, list) and 0 <= index < len(place):
            yield place[index]
    elif isinstance(place, dict):
        key = next((key for key in (step, step.removeprefix("@")) if key in place), None)
        if key is not None:
            yield place[key]


def _index(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
