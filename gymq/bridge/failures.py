"""What goes wrong, as HTTP tells it: a status that says whether to try again, and a body that is no result."""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.messages import Failure, FailureClass, Unresolved
from gymq.outcomes import RolloutError
from gymq.redaction import redact

# Trainers try again after 5xx and give the row up after 4xx. Where a class alone decides:
_STATUS = {
    FailureClass.DEADLINE_EXCEEDED: 504,
    FailureClass.CANCELLED: 409,
    # Not the row's fault, though trying again may not help.
    FailureClass.NOT_STORABLE: 500,
    FailureClass.AGENT_FAILED: 500,
}


def status_of(failure_class: FailureClass, *, retryable: bool) -> int:
    """500 for what says nothing about the row, 422 for what would end the same again; 409 and 504 by class."""
    return _STATUS.get(failure_class, 500 if retryable else 422)


class BridgeError(Exception):
    """An answer that is no result.

    Attributes:
        status: of HTTP.
        failure_class: what went wrong: a failure class of rollouts, or a word of the bridge's own.
        details: further members of the body, such as stage, task_id and attempts.
    """

    def __init__(self, status: int, failure_class: str, message: str, **details: Any) -> None:
        super().__init__(redact(message))
        self.status = status
        self.failure_class = failure_class
        self.details = details

    @property
    def message(self) -> str:
        return str(self.args[0])

    def body(self) -> bytes:
        """A JSON object whose only member is `error`; no reader takes it for a result."""
        error = {"class": self.failure_class, "message": self.message, **self.details}
        return msgspec.json.encode({"error": error})

    def __reduce__(self) -> Any:
        return _rebuilt, (self.status, self.failure_class, self.message, self.details)


def _rebuilt(status: int, failure_class: str, message: str, details: dict[str, Any]) -> BridgeError:
    return BridgeError(status, failure_class, message, **details)


def invalid(message: str) -> BridgeError:
    """The request cannot be carried out as it is."""
    return BridgeError(422, str(FailureClass.INVALID_TASK), message)


def not_found(message: str) -> BridgeError:
    return BridgeError(404, "not_found", message)


def of_rollout_error(error: RolloutError) -> BridgeError:
    """The answer for a call that failed."""
    details = {"stage": str(error.stage)} if error.stage else {}
    status = status_of(error.failure_class, retryable=error.retryable)
    return BridgeError(status, str(error.failure_class), error.message, **details)


def of_outcome(outcome: Failure | Unresolved) -> BridgeError:
    """The answer for a rollout without a verdict."""
    return BridgeError(
        status_of(outcome.failure_class, retryable=outcome.retryable),
        str(outcome.failure_class),
        outcome.message,
        stage=str(outcome.stage),
        task_id=f"{outcome.run}/{outcome.task_index}/{outcome.rollout_index}",
        attempts=outcome.attempt + 1,
    )
