"""How the rollouts of a request are made, and the batches of a training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from gymq.defaults import MAX_TIMEOUT_S, MAX_VERSIONS
from gymq.errors import UsageError
from gymq.trainer.groups import Group, Row

OnUntrainable = Literal["error", "allow"]
OnFailedGroup = Literal["mask", "refill", "raise"]
OnStale = Literal["train", "mask", "discard"]


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
        urgent: its tasks find slots of their own in the agents, and its calls are taken before those of other runs.
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
            raise UsageError(
                f"rollout_timeout_s must be above 0 and at most {MAX_TIMEOUT_S}, not {self.rollout_timeout_s}"
            )
        if self.num_samples < 1 or self.num_surplus < 0:
            raise UsageError(f"a group of {self.num_samples} samples and {self.num_surplus} on top cannot be made")
        if self.max_staleness is not None and not 0 <= self.max_staleness <= MAX_VERSIONS:
            raise UsageError(f"max_staleness must be 0 to {MAX_VERSIONS}, not {self.max_staleness}")


class Known(Protocol):
    """What is known of rows: `gymq.ext.sampling.Difficulties`."""

    def add(self, group: Group) -> None: ...

    def most_informative(self, examples: Iterable[Row], count: int) -> list[Row]: ...


@dataclass(frozen=True)
class BatchOptions:
    """How batches are made.

    Attributes:
        groups: of a batch, at most.
        num_samples: rollouts of a group.
        token_budget: sampled tokens with which a batch has enough, with fewer groups too. As many groups are begun for
            each batch as the last one needed for them. None: a batch has all its groups.
        ahead: batches whose rollouts are under way while another is trained on; 0: none, so all data are on-policy.
        max_staleness: batches after its own start that a group is trained on at the latest, at least `ahead`; None:
            `ahead`.
        on_stale: `train` and `mask` wait for the longest rollouts. What is further behind all the same, since the
            trainer went back or weights are pushed more often than once a batch, is trained on with its versions, or
            its tokens are masked. `discard` waits for none, and throws away what takes longer: it favours short
            rollouts.
        straggler_share: part of a batch that is complete when the rollouts that it must wait for are cut; groups with
            two samples or more are trained on as they are, which favours short rollouts. 1: it waits for all.
        on_failed_group: of a group that lacks samples: `refill` starts as many more as failed, and then a group of
            another row in its place; `mask` trains on what there is; `raise` makes it an error.
        varied: give groups whose samples all have the same reward no place; those of other rows take it.
        first: samples after which such a group is seen; None: all.
        known: counts all groups, and chooses of each `candidates` rows the one whose rewards vary most.
        candidates: rows that one is chosen from.
        seed: of the order of a list of rows in each epoch; None: as they are.
        epochs: how often a list of rows is gone through; None: without an end.
        evaluate_every: batches from one evaluation to the next, which runs beside the training, urgent, in the run
            `NAME-eval`; None: there are none.
        evaluation_rows: rows of an evaluation.
        evaluation_samples: rollouts of each of them.
        share: which part of the rows is for this process, for example (0, 2) for the first of two.
        state: of the batch after which to go on; None: from the start.
        rollouts: further options of `run_rollouts`.
    """

    groups: int
    num_samples: int
    token_budget: int | None = None
    ahead: int = 1
    max_staleness: int | None = None
    on_stale: OnStale = "train"
    straggler_share: float = 1.0
    on_failed_group: OnFailedGroup = "refill"
    varied: bool = False
    first: int | None = None
    known: Known | None = None
    candidates: int = 1
    seed: int | None = 0
    epochs: int | None = None
    evaluate_every: int | None = None
    evaluation_rows: Sequence[Row] = ()
    evaluation_samples: int = 1
    share: tuple[int, int] = (0, 1)
    state: dict[str, Any] | None = None
    rollouts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **options: Any) -> BatchOptions:
        """Return the options of which those that are not of batches are of `run_rollouts`."""
        ours = {one.name: options.pop(one.name) for one in fields(cls) if one.name in options}
        return cls(**ours, rollouts=options)

    def __post_init__(self) -> None:
        if self.groups < 1 or self.num_samples < 1 or self.candidates < 1:
            raise UsageError("groups, num_samples and candidates must be at least 1")
        if self.ahead < 0 or self.num_behind < self.ahead:
            raise UsageError(
                f"ahead={self.ahead}, max_staleness={self.max_staleness}: what is made that far ahead is that old"
            )
        if self.on_stale not in ("train", "mask", "discard"):
            raise UsageError(f"on_stale={self.on_stale!r}: expected 'train', 'mask' or 'discard'")
        if self.token_budget is not None and self.token_budget < 1:
            raise UsageError(f"token_budget={self.token_budget}: expected at least 1")
        if not 0.0 < self.straggler_share <= 1.0:
            raise UsageError(f"straggler_share={self.straggler_share}: expected more than 0 and at most 1")
        if self.first is not None and not (self.varied and 2 <= self.first <= self.num_samples):
            raise UsageError(
                f"first={self.first}: with `varied`, whether {self.num_samples} samples vary is seen after 2 to "
                f"{self.num_samples} of them"
            )
        if self.evaluate_every is not None and (self.evaluate_every < 1 or not self.evaluation_rows):
            raise UsageError("evaluate_every must be at least 1, and needs `evaluation_rows`")
        if self.candidates > 1 and self.known is None:
            raise UsageError("candidates: nothing is known to choose by; give `known=Difficulties()` too")
        if not 0 <= self.share[0] < self.share[1]:
            raise UsageError(f"share={self.share}: expected a part and how many there are, such as (0, 2)")

    @property
    def num_behind(self) -> int:
        """How many updates a token may be behind."""
        return self.ahead if self.max_staleness is None else self.max_staleness
