"""What the charts of a run show beside its pass@k and its rewards, from the rows of its index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from gymq.ext.viewer.histogram import Bar, histogram
from gymq.ext.viewer.over_time import Measured, Spread, TimeBin, VersionPart, by_version, over_time, spread
from gymq.ext.viewer.rollout_list import RolloutRow


class StageTimes(msgspec.Struct, frozen=True):
    """How long the calls of one stage take."""

    calls: int
    call_s: float  # on average
    rollout: Spread  # seconds of one rollout in this stage


class RunCharts(msgspec.Struct, frozen=True):
    over_time: list[TimeBin]
    versions: list[VersionPart]  # empty where models have no versions
    lengths: dict[str, list[Bar]]  # turns, output tokens and seconds of a rollout
    num_replies: int
    num_truncated: int  # of those: reached the limit of output tokens
    stages: dict[str, StageTimes]
    is_whole: bool


def run_charts(rows: Sequence[RolloutRow], *, is_whole: bool) -> RunCharts:
    """Return the charts of some rollouts."""
    measured = [
        Measured(
            one.started_at + one.duration_s,
            one.task_index,
            one.reward,
            one.policy_version,
            is_truncated=one.is_truncated,
        )
        for one in rows
    ]
    replied = [one for one in rows if one.turns]
    lengths = {
        "turns": Counter(float(one.turns) for one in replied),
        "output tokens": Counter(float(one.output_tokens) for one in rows if one.output_tokens is not None),
        "seconds": Counter(round(one.duration_s, 3) for one in replied if one.duration_s),
    }
    return RunCharts(
        over_time=over_time([one for one in measured if one.ended_at]),
        versions=by_version(measured),
        lengths={name: histogram(counts) for name, counts in lengths.items() if counts},
        num_replies=len(replied),
        num_truncated=sum(one.is_truncated for one in rows),
        stages=_stages(rows),
        is_whole=is_whole,
    )


def _stages(rows: Sequence[RolloutRow]) -> dict[str, StageTimes]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for stage, (calls, seconds) in row.stages.items():
            found.setdefault(stage, []).append((calls, seconds))
    times: dict[str, StageTimes] = {}
    for stage, parts in found.items():
        calls = sum(number for number, _ in parts)
        in_rollouts = spread([seconds for _, seconds in parts])
        assert in_rollouts is not None
        times[stage] = StageTimes(calls, sum(seconds for _, seconds in parts) / calls, in_rollouts)
    return times
