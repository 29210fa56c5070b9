"""An endpoint's refusal of a request, and what can be done about it."""

from __future__ import annotations

from typing import Any

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


def reason_and_code(parsed: Any, text: str) -> tuple[str, str]:
    """Return what an error body says, for people and for programs. OpenAI's form and its usual variations are known.

    Args:
        text: the message if it has none.
    """
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return error if isinstance(error, str) else text, ""
    message = error.get("message") or error.get("detail")
    # Some gateways repeat the status as the code.
    code = next((code for name in ("code", "type") if (code := error.get(name)) and isinstance(code, str)), "")
    return message if isinstance(message, str) else text, code
