"""Groups of samples: what a trainer is given."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from gymq.data.records import Record
from gymq.data.trainer_results import with_lists
from gymq.protocol.tokens import GENERATION_FIELD
from gymq.trainer.examples import Row as Row
from gymq.trainer.examples import called


@dataclass(frozen=True)
class Sample:
    """One rollout with its reward.

    Attributes:
        packed: `result`, with packed tokens.
        policy_versions: that answered, the first one first; empty if the model has no versions.
    """

    rollout_index: int
    packed: Row
    policy_versions: list[str]

    @cached_property
    def result(self) -> Row:
        """The row as it was sent, with `response`, `reward` and the verifier's fields; what `/run` answers.

        Each call has its whole prompt, so this takes memory with the square of the calls; `record` does not.
        """
        return with_lists(self.packed)

    @property
    def reward(self) -> float:
        return float(self.packed["reward"])

    @property
    def num_sampled_tokens(self) -> tuple[int, int]:
        """How many tokens were sampled: in `record()`, and in its other `records()`."""
        items = self.packed["response"]["output"]
        branches = self.packed["gymq"].get("branches") or ()
        kept = sum(len(item.get(GENERATION_FIELD) or ()) for item in items)
        return kept, sum(len(branch["log_probs"]) for branch in branches)

    def record(self) -> Record:
        """Return its tokens as one sequence.

        Raises:
            NotTrainable: it has none.
        """
        return Record.of(self.packed)

    def records(self) -> list[Record]:
        """Return `record()`, and a sequence for each branch of the conversation (`Record.branches_of`).

        Raises:
            NotTrainable: it has no tokens.
        """
        return [self.record(), *Record.branches_of(self.packed)]


@dataclass(frozen=True)
class SampleFailed:
    """A rollout that has no reward.

    Attributes:
        status: of HTTP, as a bridge would give it: trainers try again from 500 on.
    """

    rollout_index: int
    failure_class: str
    message: str
    status: int


@dataclass(frozen=True)
class Group:
    """The samples of one task.

    Attributes:
        example: the caller's own object.
        samples: in the order in which they were stored: the first that were done.
        failures: those that ended without a reward, and those that became stale.
        num_samples: how many were asked for.
    """

    task_index: int
    example: Row
    samples: list[Sample]
    failures: list[SampleFailed]
    num_samples: int

    def __repr__(self) -> str:
        counts = f"samples={len(self.samples)}/{self.num_samples}, failures={len(self.failures)}"
        return f"Group(task_index={self.task_index}, {counts}, rewards={reprlib.repr(self.rewards)})"

    @property
    def is_complete(self) -> bool:
        return len(self.samples) == self.num_samples

    @property
    def rewards(self) -> list[float]:
        return [sample.reward for sample in self.samples]

    @property
    def is_varied(self) -> bool:
        """Whether its samples differ in reward."""
        return len(set(self.rewards)) > 1

    @property
    def dropped_token_share(self) -> float:
        """The share of the sampled tokens that a trainer of one sequence a sample does not see, 0 to 1."""
        counts = [sample.num_sampled_tokens for sample in self.samples]
        kept, dropped = sum(kept for kept, _ in counts), sum(dropped for _, dropped in counts)
        return dropped / (kept + dropped) if dropped else 0.0

    @property
    def num_sampled_tokens(self) -> int:
        """How many tokens were sampled in its samples, in all their sequences."""
        return sum(sum(sample.num_sampled_tokens) for sample in self.samples)

    def num_behind(self, updates_since: Callable[[str], int]) -> int:
        """Return how many updates of the policy came since the first of its samples began."""
        first = [sample.policy_versions[0] if sample.policy_versions else "" for sample in self.samples]
        return max(map(updates_since, first), default=0)

    def why_incomplete(self) -> str:
        """Return the row, by its place and prompt, and why samples of it are missing, for messages."""
        reasons = "; ".join(sorted({failure.message for failure in self.failures})) or "it was cut"
        counts = f"{len(self.samples)} of {self.num_samples} samples"
        return f"{called(f'task {self.task_index}', self.example)} has {counts}: {reasons}"
