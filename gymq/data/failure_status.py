"""Outcomes without a result as errors for clients, with a status that shows whether to retry."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from gymq.errors import GymqError
from gymq.protocol.messages import Failure, FailureClass, Unresolved
from gymq.redaction import redact

# Trainers retry after 5xx and drop the row after 4xx. Classes that alone determine the status:
_STATUS = {
    FailureClass.DEADLINE_EXCEEDED: 504,
    FailureClass.CANCELLED: 409,
    # Not the fault of the row, though a retry may not help.
    FailureClass.NOT_STORABLE: 500,
    FailureClass.AGENT_FAILED: 500,
}


def status_of(failure_class: FailureClass, *, retryable: bool) -> int:
    """Return the HTTP status of a failure.

    It is 500 if a retry may succeed, 422 if it would fail the same way, and 409, 500 or 504 for some classes.
    """
    return _STATUS.get(failure_class, 500 if retryable else 422)


class StatusError(GymqError):
    """An answer that is not a result.

    Attributes:
        status: of HTTP; trainers retry from 500 on.
        failure_class: a failure class of rollouts, one that only trainers know, or a code of the HTTP routes.
        details: further fields, such as stage, task_id and attempts.
    """

    def __init__(self, status: int, failure_class: str, message: str, **details: Any) -> None:
        # A header or row that a message repeats may hold what is not UTF-8.
        super().__init__(redact(message).encode(errors="replace").decode())
        self.status = status
        self.failure_class = failure_class
        self.details = details

    @property
    def message(self) -> str:
        return str(self.args[0])

    def body(self) -> bytes:
        """Return a JSON object whose only field is `error`, so that clients do not mistake it for a result."""
        error = {"class": self.failure_class, "message": self.message, **self.details}
        return msgspec.json.encode({"error": error})

    def __reduce__(self) -> Any:
        return partial(type(self), self.status, self.failure_class, self.message, **self.details), ()


def status_error(outcome: Failure | Unresolved) -> StatusError:
    """Return the error of a rollout without a verdict."""
    return StatusError(
        status_of(outcome.failure_class, retryable=outcome.retryable),
        str(outcome.failure_class),
        outcome.message,
        stage=str(outcome.stage),
        task_id=str(outcome.rollout_id),
        attempts=outcome.attempt + 1,
    )
