"""What is slightly off in a reply, or lost in a conversion: counted, or logged once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from gymq.responses.errors import MAX_NAME, warn_once

noting: ContextVar[Callable[[str, str], None] | None] = ContextVar("noting", default=None)
"""What counts the oddities that are read in a call, by kind, with an example; None: each is logged once."""


def note(kind: str, example: str = "") -> None:
    """Report that something slightly off was read, to who counts it for the call in progress.

    Args:
        kind: in the plural, one of few.
        example: what may differ from one to the next.
    """
    counted = noting.get()
    if counted is None:
        warn_once(f"there are {kind}")
    else:
        counted(kind, example)


def warn_of_dropped(fields: Mapping[str, Any], where: str) -> None:
    """Warn once of each field of a request that says something and that the other dialect does not have.

    Args:
        where: the name of that dialect.
    """
    for name, value in fields.items():
        if value not in (None, [], {}) and value is not False:
            warn_once(f"the request's field {name[:MAX_NAME]!r} is dropped: {where} has no place for it")
