"""The totals of an agent, to which complete tasks are folded."""

from __future__ import annotations

import math

import msgspec

from gymq.stats.field_totals import FieldTotals
from gymq.stats.intervals import TaskMeans
from gymq.stats.open_tasks import TaskRollouts
from gymq.stats.pass_at_k import PassTotals, majority_passes


class TaskTotals(msgspec.Struct):
    """The totals of an agent to which a complete task is added."""

    passed: PassTotals = msgspec.field(default_factory=PassTotals)
    rewards: TaskMeans = msgspec.field(default_factory=TaskMeans)
    majority: TaskMeans = msgspec.field(default_factory=TaskMeans)
    failed_as_0: TaskMeans = msgspec.field(default_factory=TaskMeans)  # rewards; tasks without any count too

    def fold(self, rollouts: TaskRollouts, threshold: float) -> None:
        rewards = [rollout.reward for rollout in rollouts.scored]
        total = math.fsum(rewards)
        self.failed_as_0.add(total / (len(rewards) + rollouts.num_failed))
        if rewards:
            passed = [reward >= threshold for reward in rewards]
            self.passed.add(passed)
            self.rewards.add(total / len(rewards))
            self.majority.add(majority_passes([rollout.answer for rollout in rollouts.scored], passed))

    def merge(self, other: TaskTotals) -> None:
        self.passed.merge(other.passed)
        self.rewards.merge(other.rewards)
        self.majority.merge(other.majority)
        self.failed_as_0.merge(other.failed_as_0)


class AgentTotals(msgspec.Struct):
    """What is known of the rollouts of one agent."""

    folded: TaskTotals = msgspec.field(default_factory=TaskTotals)
    reward: FieldTotals = msgspec.field(default_factory=FieldTotals)
    fields: dict[str, FieldTotals] = {}
    fields_left_out: int = 0
    without_answer: int = 0
    failures: dict[str, int] = {}
    failed_attempts: dict[str, int] = {}

    def merge(self, other: AgentTotals) -> None:
        self.folded.merge(other.folded)
        self.reward.merge(other.reward)
        for name, totals in other.fields.items():
            self.fields.setdefault(name, FieldTotals()).merge(totals)
        self.fields_left_out += other.fields_left_out
        self.without_answer += other.without_answer
        for counts, more in ((self.failures, other.failures), (self.failed_attempts, other.failed_attempts)):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
