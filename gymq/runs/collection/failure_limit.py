"""When a run is stopped because of its failures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gymq.protocol.messages import Failure, FailureClass, Stage, Unresolved
from gymq.render import counted

SAME_FAILURES = 32  # rollouts in a row that fail for one reason, and a run is stopped


@dataclass(frozen=True)
class MaxFailures:
    """Limit on the failed rollouts of a run: a number, or a percentage of all."""

    number: float
    is_percent: bool = False

    @classmethod
    def parse(cls, text: str) -> MaxFailures:
        """Read `N` or `P%`.

        Raises:
            ValueError: it is neither.
        """
        is_percent = text.endswith("%")
        try:
            number = float(text[:-1]) if is_percent else int(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf or (is_percent and number > 100):
            raise ValueError(f"{text!r} is neither a number of rollouts nor a share such as 5%")
        return cls(number, is_percent)

    def of(self, total: int) -> float:
        """Return how many of `total` rollouts that is."""
        return total * self.number / 100 if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number:g}%" if self.is_percent else str(self.number)


class FailureLimit:
    """Decides when a run is stopped because of its failures.

    Without a limit of its own it is stopped when `SAME_FAILURES` rollouts in a row failed for the same reason: the
    first ones of a run, whatever the reason, and later ones if the configuration is at fault.
    """

    def __init__(self, most: MaxFailures | None, total: int, *, is_new: bool, option: str = "--max-failures") -> None:
        """Start counting for one run.

        Args:
            most: limit on failed rollouts; None: the rule of the class.
            total: number of rollouts of the run.
            is_new: whether no rollout of the run has succeeded yet.
            option: how the caller writes the limit.
        """
        self._most = most
        self._total = total
        self._option = option
        self._any_success = not is_new
        self._num_failed = 0
        self._reason: tuple[FailureClass, Stage, bool] | None = None  # of the failures in a row
        self._num_same = 0

    def note_success(self) -> None:
        """Count a rollout that has a reward."""
        self._any_success = True
        self._num_same = 0

    def note_failure(self, failure: Failure | Unresolved) -> str:
        """Count a failure; return why the run is to be stopped, empty if it is not."""
        if failure.failure_class is FailureClass.CANCELLED:
            return ""
        self._num_failed += 1
        if self._most is not None:
            if self._num_failed <= self._most.of(self._total):
                return ""
            return f"{counted(self._num_failed, 'rollout')} failed, more than {self._option} {self._most}"
        reason = (failure.failure_class, failure.stage, failure.curable)
        self._num_same = self._num_same + 1 if reason == self._reason else 1
        self._reason = reason
        if self._num_same < SAME_FAILURES or (self._any_success and not failure.curable):
            return ""
        return f"{self._num_same} rollouts in a row failed with {failure.failure_class} at {failure.stage}"
