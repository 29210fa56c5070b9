"""The errors of requests, replies and conversions."""

from __future__ import annotations

from typing import Self

import msgspec

from gymq.errors import GymqError

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
