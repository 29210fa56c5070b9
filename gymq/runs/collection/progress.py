"""The progress of a collection, for displays to read."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from gymq.bus.rpc.process_reports import SlowestCall
from gymq.stats.running import RunningReward

STALLED_AFTER_S = 30.0


@dataclass
class Progress:
    """Progress of a collection."""

    run: str = ""
    total: int = 0
    before: int = 0  # finished by earlier starts
    submitted: int = 0
    in_flight: int = 0  # submitted, here or by an earlier start, and without an outcome
    done: int = 0
    refused: int = 0  # rows of the input that cannot be used
    failures: Counter[str] = field(default_factory=Counter)  # rollouts that failed and are not retried now, by class
    newest_failure: str = ""  # the first line of its message
    rewards: RunningReward = field(default_factory=RunningReward)  # of the whole run
    input_tokens: int = 0  # of the rollouts that finished since this start
    output_tokens: int = 0
    retried: int = 0  # attempts that failed before one of them ended
    model_retries: int = 0  # requests that model workers sent to their endpoints again
    paused: bool = False  # agents start none of its rollouts
    waits: dict[str, int] = field(default_factory=dict)  # how many calls or messages wait, by the reason
    slowest: SlowestCall | None = None
    started: float = field(default_factory=time.monotonic)
    viewer_url: str | None = None  # of the run in the viewer, where one runs
    last_change: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> int:
        return self.failures.total()

    @property
    def finished(self) -> int:
        return self.done + self.failed

    @property
    def mean_reward(self) -> float | None:
        """Mean over the rollouts of the run so far; None before the first."""
        estimate = self.rewards.estimate()
        return None if estimate is None else estimate.value

    @property
    def stalled_s(self) -> float:
        """Seconds without a finished rollout, beyond the usual interval."""
        return self.silent_s if self.silent_s > STALLED_AFTER_S else 0.0

    @property
    def silent_s(self) -> float:
        """Seconds since a rollout finished, or since the start."""
        return time.monotonic() - self.last_change
