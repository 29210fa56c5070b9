"""A run as experiment trackers show one: its settings, figures, a curve, and a table of outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gymq.ext.rollout_files.shown import question_of, readable_content, row_of
from gymq.protocol.messages import JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS, Failure, Outcome, Run, VerifiedRollout
from gymq.redaction import redact
from gymq.runs.outcome_fields import objects, params_of
from gymq.stats.field_totals import FieldTotals
from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import AgentSnapshot, RunningProfile, RunningReward
from gymq.stats.sums import is_usable

MAX_ROWS = 10_000
"""Outcomes in the table to look at; the file of all outcomes has the others too."""

MAX_POINTS = 1_000
"""Points of the curve."""

"""Characters of a text in the table to look at."""

COLUMNS = (
    *("task", "rollout", "agent", "reward", "failure_class", "message"),
    *("prompt", "reply", "input_tokens", "output_tokens", "duration_s"),
)

_TOKENS = ("input_tokens", "output_tokens")


class Point(NamedTuple):
    """The curve after some outcomes."""

    num_outcomes: int
    at: float  # when the last of them ended, Unix time in seconds
    values: dict[str, float]


class RunReport:
    """Reads the outcomes of a run one by one, in the order in which they were stored; memory does not grow with them.

    Attributes:
        record: the facts of the run that are known from its start.
        rows: the table: the first `MAX_ROWS` outcomes, a value for each of `COLUMNS`.
        num_outcomes: outcomes read.
        num_left_out: those with a reward too large for statistics, which are in no figure.
    """

    def __init__(self, record: Run, profile: RunningProfile, profiled: int) -> None:
        """Start a report.

        Args:
            profile: statistics of the run so far, which the report continues.
            profiled: stream sequence of the last outcome in them.
        """
        self.record = record
        self.rows: list[list[Any]] = []
        self.num_outcomes = 0
        self.num_left_out = 0
        self._profile = profile
        self._profiled = profiled
        self._rewarded: dict[str, RunningReward] = {}
        self._durations: dict[str, FieldTotals] = {}
        self._points: list[Point] = []
        self._stride = 1
        self._ended_at = record.created_at

    def add(self, sequence: int, outcome: Outcome) -> None:
        """Add an outcome that is stored at a stream sequence."""
        self.num_outcomes += 1
        if sequence > self._profiled:
            try:
                add_outcome(self._profile, sequence, outcome)
            except ValueError:
                self.num_left_out += 1
        if len(self.rows) < MAX_ROWS:
            self.rows.append(_cells(outcome))
        if outcome.started_at:
            self._ended_at = outcome.started_at + outcome.duration_s
        if outcome.duration_s > 0 and is_usable(outcome.duration_s):
            self._durations.setdefault(outcome.agent, FieldTotals()).add(outcome.duration_s)
        if isinstance(outcome, VerifiedRollout) and is_usable(outcome.reward):
            rewards = self._rewarded.setdefault(outcome.agent, RunningReward())
            rewards.add(outcome.task_index, outcome.num_rollouts, outcome.reward)
        if self.num_outcomes % self._stride == 0:
            self._points.append(self._point())
            if len(self._points) > MAX_POINTS:  # every other one, from now on too
                self._points = self._points[1::2]
                self._stride *= 2

    def settings(self) -> dict[str, Any]:
        """Return the fields of the run's record: texts, a number, a list of texts."""
        record = self.record
        created_at = datetime.fromtimestamp(record.created_at, UTC).isoformat(timespec="seconds")
        settings = {
            "run": record.run,
            "created_at": created_at if record.created_at else None,
            "models": [redact(model) for model in record.models],
            "num_rollouts": record.num_rollouts,
            "fingerprint": record.fingerprint,
        }
        return {name: value for name, value in settings.items() if value not in (None, "", [])}

    def figures(self) -> dict[str, float]:
        """Return the statistics of the run's profile by name; those of an agent are `AGENT/...`."""
        figures: dict[str, float] = {"outcomes": self.num_outcomes}
        for name, agent in self._profile.snapshot().agents.items():
            figures |= {f"{name}/{figure}": value for figure, value in _figures(agent)}
        for name, durations in self._durations.items():
            stats = durations.stats(single=False)
            figures |= {f"{name}/duration_s": stats.mean, f"{name}/duration_s_max": stats.max}
        return figures

    def curve(self) -> Sequence[Point]:
        """Return each agent's mean reward so far, after every outcome or after every 2nd, 4th... of them."""
        whole = self._points and self._points[-1].num_outcomes == self.num_outcomes
        points = self._points if whole else [*self._points, self._point()]
        return [point for point in points if point.values]

    def _point(self) -> Point:
        estimates = {agent: rewards.estimate() for agent, rewards in self._rewarded.items()}
        means = {f"{agent}/reward_so_far": found.value for agent, found in estimates.items() if found}
        return Point(self.num_outcomes, self._ended_at, means)


def _figures(agent: AgentSnapshot) -> Iterator[tuple[str, float]]:
    yield "rollouts", agent.rollouts
    yield "tasks", agent.tasks
    for failure_class, count in agent.failures.items():
        yield f"failures/{failure_class}", count
    estimates = {f"pass@{k}": estimate for k, estimate in agent.pass_at_k.items()}
    if agent.mean_reward is not None:
        estimates["reward"] = agent.mean_reward
    if agent.lower_bound is not None:
        yield "reward_lower_bound", agent.lower_bound
    if agent.majority is not None:
        estimates["majority"] = agent.majority
    for name, estimate in estimates.items():
        yield name, estimate.value
        if estimate.interval is not None:
            yield f"{name}_low", estimate.interval.low
            yield f"{name}_high", estimate.interval.high
    for field, stats in agent.fields.items():
        name = field.replace("/", "_")  # a slash begins a group of figures
        yield f"mean/{name}", stats.mean
        if stats.std is not None:
            yield f"std/{name}", stats.std
        if field in (*_TOKENS, JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS):
            yield f"total/{name}", round(stats.mean * stats.count)


def _cells(outcome: Outcome) -> list[Any]:
    response = {} if isinstance(outcome, Failure) else outcome.response
    usage = response.get("usage")
    said = [item for item in objects(response.get("output")) if item.get("role") == "assistant"]
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in _TOKENS]
    return [
        outcome.task_index,
        outcome.rollout_index,
        outcome.agent,
        outcome.reward if isinstance(outcome, VerifiedRollout) else None,
        None if isinstance(outcome, VerifiedRollout) else str(outcome.failure_class),
        None if isinstance(outcome, VerifiedRollout) else _shortened(outcome.message),
        _shortened(question_of(params_of(row_of(outcome), {}))),
        _shortened(readable_content(said[-1].get("content")) if said else ""),
        *(count if isinstance(count, int) else None for count in counts),
        outcome.duration_s,
    ]


def _shortened(text: str) -> str:
    text = redact(text)  # before it is cut, so that no half of a secret is left
    return text if len(text) <= 500 else f"{text[:499]}…"


def first_line(error: BaseException) -> str:
    """Return the first line of a tracker's error, without secrets; the error's type if it has no text."""
    return redact(str(error).strip().partition("\n")[0]) or type(error).__name__
