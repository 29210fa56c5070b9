"""Statistics of the parts of a run, by time and by policy version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, quantiles
from typing import NamedTuple

import msgspec

from gymq.stats.intervals import Estimate
from gymq.stats.running import RunningReward

NUM_BINS = 40


class Measured(NamedTuple):
    """The numbers of one rollout.

    Attributes:
        ended_at: Unix time, seconds.
        reward: None if it failed.
        version: the policy version that answered last; empty if the model has none.
    """

    ended_at: float
    task_index: int
    reward: float | None
    version: str
    is_truncated: bool


class Part(msgspec.Struct, frozen=True):
    """The rollouts of a part of a run."""

    rollouts: int
    failed: int
    truncated: int  # replies that reached the limit of output tokens
    reward: Estimate | None  # the mean, with its 95 % interval over tasks


class TimeBin(msgspec.Struct, frozen=True):
    """The rollouts that ended in a period; Unix time in seconds."""

    start: float
    end: float
    part: Part
    so_far: Estimate | None  # the mean reward of all that ended until then, with its 95 % interval over tasks


class VersionPart(msgspec.Struct, frozen=True):
    """The rollouts whose last call one policy version answered."""

    version: str
    part: Part


class Spread(msgspec.Struct, frozen=True):
    """The distribution of some values."""

    count: int
    mean: float
    median: float
    p90: float
    max: float


def over_time(rollouts: Sequence[Measured]) -> list[TimeBin]:
    """Return rollouts by their end, in bins of equal width; no bins if all ended at the same time."""
    times = [one.ended_at for one in rollouts]
    if not times or (width := (max(times) - (start := min(times))) / NUM_BINS) <= 0:
        return []
    bins: list[list[Measured]] = [[] for _ in range(NUM_BINS)]
    for one in rollouts:
        bins[min(NUM_BINS - 1, int((one.ended_at - start) / width))].append(one)
    so_far = RunningReward()
    found: list[TimeBin] = []
    for at, those in enumerate(bins):
        _add_rewards(so_far, those)
        found.append(TimeBin(start + at * width, start + (at + 1) * width, _part(those), so_far.estimate()))
    return found


def by_version(rollouts: Iterable[Measured]) -> list[VersionPart]:
    """Return rollouts by the policy version that answered last, in order of first appearance."""
    found: dict[str, list[Measured]] = {}
    for one in sorted(rollouts, key=lambda one: one.ended_at):
        if one.version:
            found.setdefault(one.version, []).append(one)
    return [VersionPart(version, _part(those)) for version, those in found.items()]


def spread(values: Sequence[float]) -> Spread | None:
    """Return the distribution of values, with interpolated quantiles; None without values."""
    if not values:
        return None
    median, p90 = values[0], values[0]
    if len(values) > 1:
        tenths = quantiles(values, n=10, method="inclusive")
        median, p90 = tenths[4], tenths[8]
    return Spread(len(values), fmean(values), median, p90, max(values))


def _part(rollouts: Sequence[Measured]) -> Part:
    reward = RunningReward()
    _add_rewards(reward, rollouts)
    return Part(
        rollouts=len(rollouts),
        failed=sum(one.reward is None for one in rollouts),
        truncated=sum(one.is_truncated for one in rollouts),
        reward=reward.estimate(),
    )


def _add_rewards(mean: RunningReward, rollouts: Iterable[Measured]) -> None:
    for one in rollouts:
        if one.reward is not None:
            mean.add(one.task_index, None, one.reward)
