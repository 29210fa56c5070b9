"""Errors of requests, replies and conversions, and warnings about dropped fields, logged once each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Self, TypeVar

import msgspec

from gymq.errors import GymqError

MAX_NAME = 60  # characters of a name in a warning
_log = logging.getLogger("gymq.responses")
_reported: set[str] = set()

T = TypeVar("T")

noting: ContextVar[Callable[[str, str], None] | None] = ContextVar("noting", default=None)
"""What counts the oddities that are read in a call, by kind, with an example; None: each is logged once."""


class ResponsesError(GymqError, ValueError):
    """A value at `path`, such as `input[3].role`, cannot be used; `reason` says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason

    def within(self, parent: str) -> Self:
        """Return the same error with its path continued upwards: `role` within `input[3]` is `input[3].role`."""
        separator = "." if self.path and not self.path.startswith("[") else ""
        return type(self)(f"{parent}{separator}{self.path}", self.reason)


class InvalidRequest(ResponsesError):
    """The caller's request does not fit the schema, or has no form in another dialect. Nothing was sent."""


class InvalidReply(ResponsesError):
    """A model's reply does not fit the schema, or has no form in another dialect. The caller did nothing wrong."""


def checked(
    value: Any, schema: type[T], error: type[ResponsesError] = InvalidRequest, *, path: str = "", strict: bool = True
) -> T:
    """Return a value converted to a schema by `msgspec.convert`.

    Args:
        path: where the value is in the request or reply.

    Raises:
        ResponsesError: of the type `error`; a field does not fit. It has the path of the first one.
    """
    try:
        return msgspec.convert(value, schema, strict=strict)
    except msgspec.ValidationError as invalid:
        reason, _, place = str(invalid).partition(" - at `$")
        fault = error(place.removesuffix("`").removeprefix("."), reason)
        raise (fault.within(path) if path else fault) from None


def warn_once(message: str) -> None:
    """Log a warning unless this process has logged it before."""
    if message not in _reported and len(_reported) < 1000:
        _reported.add(message)
        _log.warning("%s", message)


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
