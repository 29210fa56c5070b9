"""Rollouts where they are worth most: rows whose rewards differ, tasks until their pass rates are known.

Only the rollouts are stored: the difficulty of a task is counted from the outcomes of the run, so a trainer that
restarts knows the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import math
from array import array
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from gymq.data.failure_status import StatusError
from gymq.data.rows import AGENT_REF, ROW_NUMBER
from gymq.data.trainer_results import check_verdict
from gymq.errors import UsageError
from gymq.ext.sampling.sequential import expected_variance, mean_reward_interval, pass_rate_interval
from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.stats.intervals import Interval
from gymq.trainer.groups import Group, Row
from gymq.trainer.run import TrainingRun

BOOKKEEPING = "_ng_"  # what fields begin with that say where a row is in a run

_ZERO_TO_ONE = Interval(0.0, 1.0)


@dataclass(frozen=True)
class Rewards:
    """The rewards of a row's rollouts.

    Attributes:
        pass_threshold: smallest reward with which a rollout passes.
        scale: lowest and highest reward, at least 0 to 1.
    """

    rewards: Sequence[float]
    pass_threshold: float = 1.0
    scale: Interval = _ZERO_TO_ONE

    @property
    def num_rollouts(self) -> int:
        return len(self.rewards)

    @property
    def passed(self) -> int:
        return sum(reward >= self.pass_threshold for reward in self.rewards)

    @property
    def failed(self) -> int:
        return self.num_rollouts - self.passed

    @property
    def interval(self) -> Interval:
        """The 95 % interval of its pass rate."""
        return pass_rate_interval(self.passed, self.failed)

    @property
    def mean_interval(self) -> Interval:
        """The 95 % interval of its mean reward."""
        return mean_reward_interval(self.rewards, self.scale)

    @property
    def expected_variance(self) -> float:
        """The expected variance of the rewards of its next rollouts."""
        return expected_variance(self.rewards, self.scale)

    def quantile(self, share: float) -> float | None:
        """Return the smallest reward that at least this share of the rollouts does not exceed; None without any."""
        ranked = sorted(self.rewards)
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else None


@dataclass
class Difficulties:
    """The rewards of each row in a run, over all steps; rows are the same if all but their indices is.

    Attributes:
        pass_threshold: smallest reward with which a rollout passes.
    """

    pass_threshold: float = 1.0
    _groups: dict[bytes, dict[int, array[float]]] = field(default_factory=dict)  # by row and task index
    _scale: Interval = _ZERO_TO_ONE

    @classmethod
    async def of_run(
        cls, run: TrainingRun, tasks: Container[int] | None = None, *, pass_threshold: float = 1.0
    ) -> Difficulties:
        """Count the rollouts that are stored of a run.

        Args:
            tasks: indices of those that are counted; None: all. A trainer that resumes at a step leaves out those of
                this step, whose groups it adds when it has them, and chooses the rows that it chose before.
            pass_threshold: smallest reward with which a rollout passes.

        Raises:
            BusError: they cannot be read.
        """
        made = cls(pass_threshold)
        async for outcome in run.stored():
            if tasks is None or outcome.task_index in tasks:
                made.add_outcome(outcome)
        return made

    def add_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, VerifiedRollout) and _has_reward(outcome):
            groups = self._groups.setdefault(_key(msgspec.json.decode(outcome.row)), {})
            groups.setdefault(outcome.task_index, array("d")).append(outcome.reward)
            self._scale = _widened(self._scale, [outcome.reward])

    def add(self, group: Group) -> None:
        """Count the samples of a group. One that was counted when it was smaller, or from the store, counts once."""
        groups = self._groups.setdefault(_key(group.example), {})
        if len(groups.get(group.task_index, ())) < len(group.samples):
            groups[group.task_index] = array("d", group.rewards)
            self._scale = _widened(self._scale, group.rewards)

    def of(self, example: Row) -> Rewards:
        groups = self._groups.get(_key(example), {}).values()
        return Rewards(array("d", chain.from_iterable(groups)), self.pass_threshold, self._scale)

    @property
    def num_rollouts(self) -> int:
        """How many are counted, of all rows."""
        return sum(len(rewards) for groups in self._groups.values() for rewards in groups.values())

    def most_informative(self, examples: Iterable[Row], count: int) -> list[Row]:
        """Return the examples whose rewards are expected to vary most."""
        return heapq.nlargest(count, examples, key=lambda example: self.of(example).expected_variance)


def _widened(scale: Interval, rewards: Iterable[float]) -> Interval:
    return Interval(min((scale.low, *rewards)), max((scale.high, *rewards)))


async def rollouts_until_known(
    run: TrainingRun,
    examples: Sequence[Row],
    *,
    narrower_than: float,
    at_once: int = 8,
    most: int = 128,
    pass_threshold: float | None = 1.0,
    **options: Any,
) -> AsyncGenerator[Group, None]:
    """Yield a group for each example, with as many samples as it takes to know its pass rate, or its mean reward.

    Args:
        narrower_than: how wide the 95 % interval may be.
        at_once: rollouts that are added to a group at a time.
        most: rollouts of a group at most.
        pass_threshold: smallest reward with which a rollout passes; None: the interval is that of the mean reward.
        options: of `TrainingRun.run_rollouts`, for all groups; not `num_surplus` and `straggler_s`, which would end a
            task for good.

    Raises:
        UsageError, RowError, BusError: as `run_rollouts` does.
    """
    for name in ("num_surplus", "straggler_s"):
        if options.get(name):
            raise UsageError(f"{name} cannot be used here: after a cut, all further rollouts of a task are cancelled")
    widest = math.inf if pass_threshold is None else 1.0
    if not (0.0 < narrower_than < widest and 1 <= at_once <= most):
        given = f"narrower_than={narrower_than:g}, at_once={at_once}, most={most}"
        raise UsageError(f"{given}: narrower_than must be between 0 and {widest:g}, at_once from 1 to most")

    def is_known(rewards: Sequence[float]) -> bool:
        if pass_threshold is None:
            interval = Rewards(rewards, scale=_widened(_ZERO_TO_ONE, rewards)).mean_interval
        else:
            interval = Rewards(rewards, pass_threshold).interval
        return interval.width <= narrower_than

    sizes = [*range(at_once, most, at_once), most]
    tasks = [asyncio.create_task(_until_known(run, example, sizes, is_known, options)) for example in examples]
    try:
        for completed in asyncio.as_completed(tasks):
            yield await completed
    finally:
        for task in tasks:
            task.cancel()


async def _until_known(
    run: TrainingRun,
    example: Row,
    sizes: Iterable[int],
    is_known: Callable[[Sequence[float]], bool],
    options: Mapping[str, Any],
) -> Group:
    for size in sizes:
        group = await _one(run, example, {**options, "num_samples": size})
        if is_known(group.rewards):
            break
    return group


async def _one(run: TrainingRun, example: Row, options: Mapping[str, Any]) -> Group:
    (group,) = [group async for group in run.run_rollouts([example], **options)]
    return group


def _has_reward(outcome: VerifiedRollout) -> bool:
    try:
        check_verdict(outcome)
    except StatusError:
        return False
    return True


def _key(row: Mapping[str, Any]) -> bytes:
    """Return what distinguishes a row, its place in a run aside."""
    fields = {
        name: value
        for name, value in row.items()
        if name not in (ROW_NUMBER, AGENT_REF) and not name.startswith(BOOKKEEPING)
    }
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).digest()
