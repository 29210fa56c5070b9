"""The failures of a run by class and message: what went wrong how often, and where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from gymq.ext.viewer.rollout_list import RolloutRow

_NUMBER = re.compile(r"[0-9]+")


class FailureKind(msgspec.Struct, frozen=True):
    """Rollouts that ended without a reward for the same reason, as far as their messages say."""

    failure_class: str
    stage: str
    message: str  # of the first one
    count: int
    workers: list[tuple[str, int]]  # and how many each had, those with the most first
    rollouts: list[tuple[int, int]]  # examples: task and rollout index


class FailureKinds(msgspec.Struct, frozen=True):
    groups: list[FailureKind]  # the largest first
    num_failed: int  # rollouts
    is_whole: bool


def failure_groups(rows: Iterable[RolloutRow], *, is_whole: bool) -> FailureKinds:
    """Return the failed among some rollouts by class, stage and message; messages may differ in their numbers."""
    found: dict[tuple[str, str, str], list[RolloutRow]] = {}
    for row in rows:
        if row.failure_class is not None:
            reason = _NUMBER.sub("#", row.words.partition("\n")[0])
            found.setdefault((row.failure_class, row.stage, reason), []).append(row)
    groups = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return FailureKinds(
        [_group(failure_class, stage, those) for (failure_class, stage, _), those in groups[:50]],
        sum(len(those) for those in found.values()),
        is_whole,
    )


def _group(failure_class: str, stage: str, rows: list[RolloutRow]) -> FailureKind:
    return FailureKind(
        failure_class=failure_class,
        stage=stage,
        message=rows[0].words,
        count=len(rows),
        workers=Counter(row.worker for row in rows if row.worker).most_common(8),
        rollouts=[(row.task_index, row.rollout_index) for row in rows[:8]],
    )
