"""How the rollouts of a request are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gymq.defaults import MAX_TIMEOUT_S, MAX_VERSIONS
from gymq.trainer.examples import TrainerError

OnUntrainable = Literal["error", "allow"]
OnFailedGroup = Literal["mask", "refill", "raise"]


@dataclass(frozen=True)
class RolloutOptions:
    """How the rollouts of a request are made: the options of `TrainingRun.run_rollouts`.

    Attributes:
        num_samples: rollouts a group needs.
        num_surplus: rollouts of each group that are started on top; when enough are done the rest is cut.
        straggler_s: seconds after the first outcome of a group when what is missing is cut; None: it is waited for.
        max_staleness: updates of the policy that may come between the first reply of a rollout and the moment when its
            group is given out; None: any number. Rollouts that take longer are thrown away; `train_batches` waits for
            them.
        rollout_timeout_s: seconds for a rollout, from the moment an agent takes it.
        in_order: give groups in the order of the examples.
        on_untrainable: `allow` takes rollouts without token ids as samples, for evaluation; `error` as failures.
        on_failed_group: `mask` gives a group out with the samples that it has; `refill` first rolls out as many more as
            failed, once, if a sample of the group succeeded; `raise` makes it an error.
        agent: instance for examples that name none.
        urgent: before the tasks of other runs.
    """

    num_samples: int = 1
    num_surplus: int = 0
    straggler_s: float | None = None
    max_staleness: int | None = None
    rollout_timeout_s: float = 3600.0
    in_order: bool = False
    on_untrainable: OnUntrainable = "error"
    on_failed_group: OnFailedGroup = "mask"
    agent: str | None = None
    urgent: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.rollout_timeout_s <= MAX_TIMEOUT_S:
            raise TrainerError(
                f"rollout_timeout_s must be above 0 and at most {MAX_TIMEOUT_S}, not {self.rollout_timeout_s}"
            )
        if self.num_samples < 1 or self.num_surplus < 0:
            raise TrainerError(f"a group of {self.num_samples} samples and {self.num_surplus} on top cannot be made")
        if self.max_staleness is not None and not 0 <= self.max_staleness <= MAX_VERSIONS:
            raise TrainerError(f"max_staleness must be 0 to {MAX_VERSIONS}, not {self.max_staleness}")
