"""Errors as HTTP reports them: a status that says whether to retry."""

from __future__ import annotations

from gymq.data.failure_status import StatusError, status_of
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass


def invalid(message: str) -> StatusError:
    """Return the error for a request that cannot be carried out as it is."""
    return StatusError(422, str(FailureClass.INVALID_TASK), message)


def not_found(message: str) -> StatusError:
    return StatusError(404, "not_found", message)


def run_not_found(run: str) -> StatusError:
    return not_found(f"run {run} is not known")


def of_rollout_error(error: RolloutError) -> StatusError:
    """Return the answer for a call that failed."""
    details = {"stage": str(error.stage)} if error.stage else {}
    status = status_of(error.failure_class, retryable=error.retryable)
    return StatusError(status, str(error.failure_class), error.message, **details)
