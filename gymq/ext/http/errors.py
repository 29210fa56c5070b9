"""Errors as HTTP reports them: a status that says whether to retry, and a body that is not a result."""

from __future__ import annotations

import msgspec

from gymq.data.failure_status import StatusError, status_of
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass


class HttpError(StatusError):
    """An answer that is not a result; its failure class may also be one of the bridge's own error codes."""

    def body(self) -> bytes:
        """Return a JSON object whose only field is `error`, so that clients do not mistake it for a result."""
        error = {"class": self.failure_class, "message": self.message, **self.details}
        return msgspec.json.encode({"error": error})


def invalid(message: str) -> HttpError:
    """Return the error for a request that cannot be carried out as it is."""
    return HttpError(422, str(FailureClass.INVALID_TASK), message)


def not_found(message: str) -> HttpError:
    return HttpError(404, "not_found", message)


def run_not_found(run: str) -> HttpError:
    return not_found(f"run {run} is not known")


def of_rollout_error(error: RolloutError) -> HttpError:
    """Return the answer for a call that failed."""
    details = {"stage": str(error.stage)} if error.stage else {}
    status = status_of(error.failure_class, retryable=error.retryable)
    return HttpError(status, str(error.failure_class), error.message, **details)


def as_http_error(error: StatusError) -> HttpError:
    """Return the answer for a rollout that has no result."""
    return HttpError(error.status, error.failure_class, error.message, **error.details)
