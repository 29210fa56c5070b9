"""What can go wrong with a rollout, as exceptions. Each carries its class, stage and whether another try may help."""

from __future__ import annotations

from gymq.messages import FailureClass, Stage

# A failure of these classes says nothing about the row: trying the rollout again may succeed.
RETRYABLE = frozenset(
    {
        FailureClass.MODEL_FAILED,
        FailureClass.VERIFIER_FAILED,
        FailureClass.JUDGE_FAILED,
        FailureClass.COMPONENT_FAILED,
        FailureClass.SESSION_LOST,
        FailureClass.NO_WORKER,
        FailureClass.WORKER_LOST,
        FailureClass.SATURATED,
        FailureClass.REDELIVERED_TOO_OFTEN,
    }
)

# Argument of the CancelledError that ends a rollout here which another agent process goes on with.
GOES_ON_ELSEWHERE = "goes on elsewhere"


class RolloutError(Exception):
    """A rollout, or a call inside one, that has no result.

    Attributes:
        failure_class: why.
        stage: where; None until somebody who knows fills it in.
        retryable: whether another try may succeed.
    """

    def __init__(
        self,
        failure_class: FailureClass,
        message: str,
        *,
        stage: Stage | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.stage = stage
        self.retryable = failure_class in RETRYABLE if retryable is None else retryable

    @property
    def message(self) -> str:
        return str(self.args[0])

    def at(self, stage: Stage) -> RolloutError:
        """Itself, with the stage filled in if nobody did before."""
        self.stage = self.stage or stage
        return self


class InvalidTask(RolloutError):
    """The row, or the response to verify, does not fit."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.INVALID_TASK, message)


class JudgeFailed(RolloutError):
    """The judge model could not be asked, or gave no usable reply. Not a wrong answer."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.JUDGE_FAILED, message)


class ComponentFailed(RolloutError):
    """A service the verifier depends on could not be asked. Not a wrong answer."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.COMPONENT_FAILED, message)


class ToolError(Exception):
    """A tool refused a call. The model reads `message`; the rollout goes on.

    `status` follows HTTP: 400 session not seeded, 404 no such tool, 422 arguments do not fit, 500 the tool failed.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
