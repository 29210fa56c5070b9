"""A row without a result, as clients of HTTP and trainers get it."""

from __future__ import annotations

from gymq.errors import GymqError


class RowFailed(GymqError):
    """A row without a result.

    Attributes:
        status: HTTP status; 0 if no answer arrived.
        response_content: the body of the answer.
    """

    def __init__(self, status: int, response_content: bytes) -> None:
        super().__init__(status, response_content)
        self.status = status
        self.response_content = response_content

    def __str__(self) -> str:
        text = self.response_content[:2000].decode(errors="replace")
        return f"no answer: {text}" if not self.status else f"{self.status}: {text}"
