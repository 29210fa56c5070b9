"""Answers in the form in which they are written to a file."""

import json
from array import array
from typing import Any


def plain(answer: Any) -> Any:
    """A copy of `answer` that is JSON: packed arrays of tokens become lists.

    Raises:
        TypeError: a part of it has no JSON form.
    """
    return json.loads(json.dumps(answer, default=_unpacked))


def _unpacked(value: object) -> list[Any]:
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{value!r} has no JSON form")
