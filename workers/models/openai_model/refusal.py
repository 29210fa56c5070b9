"""An endpoint's refusal of a request, and what can be done about it."""

from __future__ import annotations

import gymq

_UNKNOWN_PATH = frozenset({404, 405, 501})
UNFIT = frozenset({400, 413, 422})
"""Statuses that find fault with the request."""


class Refused(gymq.GymqError):
    """The endpoint refused a request.

    Attributes:
        reason: the endpoint's own words, cut to a sensible length.
        code: the endpoint's error code or type, empty if it gave none.
        retryable: whether a later attempt may succeed.
        status: of the answer.
        curable: whether the key, the URL or the model's name is wrong, and not the request.
    """

    def __init__(
        self, message: str, *, reason: str, code: str, retryable: bool, status: int = 200, curable: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.retryable = retryable
        self.status = status
        self.curable = curable

    def advise(self, cure: str) -> None:
        """Add to the message what can be done."""
        self.args = (f"{self}; {cure}",)

    @property
    def is_unknown_path(self) -> bool:
        """Whether the endpoint may not have the path that was asked at all."""
        return self.status in _UNKNOWN_PATH
