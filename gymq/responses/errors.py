"""Errors of requests, replies and conversions, and warnings that are logged once each."""

from __future__ import annotations

import logging
from typing import Any, Self, TypeVar

import msgspec

from gymq.errors import GymqError

MAX_NAME = 60  # characters of a name in a warning
_log = logging.getLogger("gymq.responses")
_reported: set[str] = set()

T = TypeVar("T")


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
