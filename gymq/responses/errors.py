"""The errors of requests, replies and conversions, and warnings about what is dropped, once for each."""

from __future__ import annotations

import logging
from typing import Self

import msgspec

from gymq.errors import GymqError

MAX_NAME = 60  # characters of a name in a warning
_MAX_WARNINGS = 1000  # different ones in one process; the names come from outside
_log = logging.getLogger("gymq.responses")
_reported: set[str] = set()

_MSGSPEC_PATH = " - at `$"


class ResponsesError(GymqError, ValueError):
    """Something at `path` (for example `input[3].role`) that cannot be used, and why."""

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
    """The caller's request does not fit the schema. Nothing was sent."""


class Unsupported(ResponsesError):
    """The request is valid, but the other dialect has no way to say it."""


class InvalidReply(ResponsesError):
    """A model answered with something that is not a reply. The caller did nothing wrong."""


def invalid_request(error: msgspec.ValidationError) -> InvalidRequest:
    """Say where msgspec found the fault in our notation of paths."""
    reason, _, place = str(error).partition(_MSGSPEC_PATH)
    return InvalidRequest(place.removesuffix("`").removeprefix("."), reason)


def warn_once(message: str) -> None:
    """Log a warning unless this process has logged it before."""
    if message not in _reported and len(_reported) < _MAX_WARNINGS:
        _reported.add(message)
        _log.warning("%s", message)
