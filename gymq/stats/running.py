"""Statistics of a run in progress: from rollouts in any order, the same numbers as later from the files.

"The first k rollouts" of a task means the first by rollout index, so a task's rollouts are kept until all of them have
arrived. Then they are folded into sums, and only the sums remain: memory grows with the tasks in progress, not with the
length of the run.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gymq.defaults import PASS_THRESHOLD
from gymq.stats.field_totals import FieldStats, FieldTotals
from gymq.stats.intervals import Estimate, mean_interval
from gymq.stats.open_tasks import Failed, OpenTasks, Scored
from gymq.stats.pass_at_k import PERCENT, PassTotals, RewardTotals
from gymq.stats.sums import ExactSum, Moments, is_usable

MAX_FIELDS = 256
"""Numeric fields profiled per agent; further ones are counted in `fields_left_out`."""

MAX_SLOWEST = 20
"""Slowest rollouts that are remembered of a run."""

_KEPT_ANSWER_BYTES = 16


class AgentSnapshot(msgspec.Struct, frozen=True):
    """Statistics of one agent so far. pass@k, majority@k and no_answer are percentages."""

    rollouts: int  # with a reward
    tasks: int  # with at least one such rollout
    failures: dict[str, int]  # rollouts whose outcome is a failure, by its class
    max_k: int  # largest number of rollouts of a task
    mean_reward: Estimate | None
    pass_at_k: dict[int, Estimate]
    avg_of_k: dict[int, float]  # pass@1[avg-of-k]
    majority_at_k: dict[int, float]  # empty where no rollout has an answer
    no_answer: float | None  # None where no rollout has an answer
    fields: dict[str, FieldStats] = msgspec.field(name="members")
    fields_left_out: int = msgspec.field(name="members_left_out")
    failed_attempts: dict[str, int] = {}  # by failure class; those that a later outcome replaced count too


class ProfileSnapshot(msgspec.Struct, frozen=True):
    """Statistics of a run so far."""

    agents: dict[str, AgentSnapshot]
    open_tasks: int  # tasks whose rollouts have not all come


class Slow(msgspec.Struct, frozen=True, array_like=True):
    """One of the slowest rollouts of a run."""

    duration_s: float
    task_index: int
    rollout_index: int
    agent: str
    reward: float | None  # None: it failed


class _TaskTotals(msgspec.Struct):
    """The totals of an agent to which a complete task is added."""

    passed: PassTotals = msgspec.field(default_factory=PassTotals)
    tasks: int = 0
    score: RewardTotals = msgspec.field(default_factory=RewardTotals)
    # Mean reward of each task, weighted with the square of its number of rollouts: see `_mean_reward`.
    clusters: Moments = msgspec.field(default_factory=Moments)

    def fold(self, rollouts: Sequence[Scored], threshold: float) -> None:
        rewards = [rollout.reward for rollout in rollouts]
        self.tasks += 1
        self.passed.add([reward >= threshold for reward in rewards])
        self.score.add(rewards, [rollout.answer for rollout in rollouts])
        self.clusters.add(math.fsum(rewards) / len(rewards), len(rewards) ** 2)


class _Agent(msgspec.Struct):
    folded: _TaskTotals = msgspec.field(default_factory=_TaskTotals)
    reward: FieldTotals = msgspec.field(default_factory=FieldTotals)
    fields: dict[str, FieldTotals] = msgspec.field(name="members", default_factory=dict)
    fields_left_out: int = msgspec.field(name="members_left_out", default=0)
    without_answer: int = 0
    failures: dict[str, int] = {}
    failed_attempts: dict[str, int] = {}


class _State(msgspec.Struct):
    pass_threshold: float
    agents: dict[str, _Agent] = {}
    tasks: OpenTasks = msgspec.field(default_factory=OpenTasks)
    slowest: list[Slow] = []  # slowest first


class RunningProfile:
    """Statistics of one run, rollout by rollout. Repeated messages count once."""

    def __init__(self, pass_threshold: float = PASS_THRESHOLD, extended_to: int | None = None) -> None:
        """Start an empty profile.

        Args:
            pass_threshold: the smallest reward with which a rollout passes, for pass@k.
            extended_to: if the run was extended, the largest number of rollouts of a task. Earlier outcomes report
                fewer, so a task with fewer rollouts is not complete.
        """
        self._state = _State(pass_threshold, tasks=OpenTasks(at_least=extended_to or 0))

    @classmethod
    def from_state(cls, state: bytes) -> RunningProfile:
        """Resume from what `state` returned.

        Raises:
            ValueError: these bytes are not a valid state.
        """
        profile = cls()
        try:
            profile._state = msgspec.msgpack.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the saved state of the profile cannot be read: {error}") from None
        return profile

    def state(self) -> bytes:
        """Return the whole state, as msgpack."""
        return msgspec.msgpack.encode(self._state)

    def is_outgrown(self, task_index: int, num_rollouts: int) -> bool:
        """Return whether a task was folded with fewer rollouts than it has: its run was extended since."""
        return (self._state.tasks.closed_with(task_index) or num_rollouts) < num_rollouts

    def is_complete(self, task_index: int) -> bool:
        """Return whether a task is folded, so that nothing that is added to it counts any more."""
        return self._state.tasks.closed_with(task_index) is not None

    def knows_extension(self, extended_to: int | None) -> bool:
        """Return whether no task was taken for complete with fewer rollouts than these, for a run that was extended."""
        return self._state.tasks.at_least >= (extended_to or 0)

    def add(
        self,
        agent: str,
        task_index: int,
        rollout_index: int,
        *,
        reward: float,
        num_rollouts: int | None = None,
        answer: str | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> bool:
        """Add a rollout that has a reward.

        Args:
            agent: who made it.
            task_index: its task.
            rollout_index: its place among the task's rollouts.
            reward: the verdict.
            num_rollouts: how many rollouts the task has in all. A task without this number stays open.
            answer: the rollout's answer, for the majority; None if it gave no answer.
            numbers: further numeric fields to profile. Values that are not finite count as missing.

        Returns:
            False if the rollout was there before or its task is folded already; then nothing is counted.

        Raises:
            ValueError: the reward is not finite, or too large for statistics.
        """
        if not is_usable(reward):
            raise ValueError(f"rollout {(task_index, rollout_index)}: the reward is {reward}, not a usable number")
        scored = Scored(agent, float(reward), _answer_key(answer))
        replaced = self._state.tasks.failure_of(task_index, rollout_index)
        if not self._state.tasks.add(task_index, rollout_index, scored, num_rollouts):
            return False
        self._forget(replaced)
        totals = self._agent(agent)
        totals.reward.add(float(reward))
        totals.without_answer += answer is None
        for name, value in (numbers or {}).items():
            if name != "reward" and is_usable(value):
                _add_field(totals, name, float(value))
        self._fold(self._state.tasks.close_if_complete(task_index))
        return True

    def add_failure(
        self,
        agent: str,
        task_index: int,
        rollout_index: int,
        *,
        failure_class: str,
        final: bool,
        num_rollouts: int | None = None,
        order: int = 0,
    ) -> bool:
        """Add a failed attempt at a rollout, which takes the place of an earlier one.

        Args:
            agent: who made it.
            task_index: its task.
            rollout_index: its place among the task's rollouts.
            failure_class: why it failed.
            final: whether no further attempt can follow. The task is not kept open for such a rollout.
            num_rollouts: how many rollouts the task has in all.
            order: larger than that of an earlier attempt at the rollout, such as the stream sequence of the outcome;
                distinguishes a second failure from a repeated message.

        Returns:
            False if this attempt, a later one or a reward was there before, or the task is folded already; then
            nothing is counted.
        """
        failed = Failed(order, final, agent, failure_class)
        replaced = self._state.tasks.failure_of(task_index, rollout_index)
        if not self._state.tasks.add(task_index, rollout_index, failed, num_rollouts):
            return False
        self._forget(replaced)
        failures = self._agent(agent).failures
        failures[failure_class] = failures.get(failure_class, 0) + 1
        self.count_attempt(agent, failure_class)
        self._fold(self._state.tasks.close_if_complete(task_index))
        return True

    def count_attempt(self, agent: str, failure_class: str) -> None:
        """Count a failed attempt, whether or not it is the outcome of its rollout."""
        attempts = self._agent(agent).failed_attempts
        attempts[failure_class] = attempts.get(failure_class, 0) + 1

    def take_attempts(self, before: RunningProfile) -> None:
        """Take the counts of failed attempts from a profile that saw those whose outcomes were replaced since."""
        for name, agent in before._state.agents.items():
            self._agent(name).failed_attempts = dict(agent.failed_attempts)

    def note_duration(self, slow: Slow) -> None:
        """Keep a rollout or failed attempt if it is among the slowest; of several attempts, the slowest."""
        slowest = self._state.slowest
        if len(slowest) >= MAX_SLOWEST and slow.duration_s <= slowest[-1].duration_s:
            return
        at = (slow.task_index, slow.rollout_index)
        before = next((known for known in slowest if (known.task_index, known.rollout_index) == at), None)
        if before is not None:
            if before.duration_s > slow.duration_s:
                return
            slowest.remove(before)
        bisect.insort(slowest, slow, key=lambda known: -known.duration_s)
        del slowest[MAX_SLOWEST:]

    def slowest(self) -> Sequence[Slow]:
        """Return the `MAX_SLOWEST` slowest rollouts, the slowest first."""
        return tuple(self._state.slowest)

    def reward_counts(self, agent: str) -> Mapping[float, int] | None:
        """Return how often an agent got each reward; None with too many distinct rewards."""
        values = self._agent(agent).reward.values
        return None if values is None else dict(values)

    def snapshot(self, ks: Iterable[int] | None = None) -> ProfileSnapshot:
        """Compute statistics of all rollouts so far, including those of open tasks.

        Args:
            ks: values of k; default: the largest number of rollouts of a task, and the powers of two below it.
        """
        open_tasks: dict[str, list[Sequence[Scored]]] = {}
        for rollouts in self._state.tasks.rollouts():
            for name, scored in rollouts.items():
                open_tasks.setdefault(name, []).append(scored)
        wanted = None if ks is None else sorted(set(ks))
        agents = {
            name: _snapshot(agent, open_tasks.get(name, []), wanted, self._state.pass_threshold)
            for name, agent in sorted(self._state.agents.items())
        }
        return ProfileSnapshot(agents, len(self._state.tasks))

    def _agent(self, name: str) -> _Agent:
        return self._state.agents.setdefault(name, _Agent())

    def _forget(self, failure: Failed | None) -> None:
        """Stop counting a failure that another outcome replaces."""
        if failure is not None and failure.failure_class:
            failures = self._agent(failure.agent).failures
            failures[failure.failure_class] -= 1
            if not failures[failure.failure_class]:
                del failures[failure.failure_class]

    def _fold(self, rollouts: Mapping[str, Sequence[Scored]]) -> None:
        for agent, scored in rollouts.items():
            self._agent(agent).folded.fold(scored, self._state.pass_threshold)


def _snapshot(
    agent: _Agent, open_tasks: Iterable[Sequence[Scored]], ks: Sequence[int] | None, threshold: float
) -> AgentSnapshot:
    totals = msgspec.msgpack.decode(msgspec.msgpack.encode(agent.folded), type=_TaskTotals)
    for rollouts in open_tasks:
        totals.fold(rollouts, threshold)
    score, rollouts_scored = totals.score, agent.reward.count
    ks = _default_ks(score.max_k) if ks is None else [k for k in ks if 1 <= k <= score.max_k]
    has_answers = agent.without_answer < rollouts_scored
    fields = {"reward": agent.reward, **agent.fields} if rollouts_scored else {}
    return AgentSnapshot(
        rollouts=rollouts_scored,
        tasks=totals.tasks,
        failures=dict(agent.failures),
        max_k=score.max_k,
        mean_reward=_mean_reward(agent.reward, totals),
        pass_at_k={k: totals.passed.percent_at(k) for k in ks},
        avg_of_k=score.average.means(ks),
        majority_at_k=score.majority.means(ks) if has_answers else {},
        no_answer=PERCENT * agent.without_answer / rollouts_scored if has_answers else None,
        fields={name: totals.stats(single=rollouts_scored == 1) for name, totals in fields.items()},
        fields_left_out=agent.fields_left_out,
        failed_attempts=dict(agent.failed_attempts),
    )


def _mean_reward(reward: FieldTotals, totals: _TaskTotals) -> Estimate | None:
    """Return the mean over rollouts; its standard error takes the rollouts of a task for one cluster.

    With n rollouts in all, the squared error is the sum over tasks of (rollouts * (task's mean - mean))² / n², times
    T / (T - 1) for T tasks. Source: clustered standard errors in Miller, arXiv:2411.00640.
    """
    if not reward.count:
        return None
    return _clustered_mean(reward.sum(), reward.count, (reward.low, reward.high), totals.clusters, totals.tasks)


def _clustered_mean(total: float, count: int, extremes: tuple[float, float], clusters: Moments, tasks: int) -> Estimate:
    mean = total / count
    bounds = (0.0, 1.0) if extremes[0] >= 0 and extremes[1] <= 1 else None
    interval = None
    if tasks > 1:
        squares = clusters.squares + clusters.weight * (clusters.mean - mean) ** 2
        std_error = math.sqrt(max(0.0, squares) * tasks / (tasks - 1)) / count
        interval = mean_interval(mean, std_error, tasks, bounds)
    return Estimate(mean, interval, tasks)


class RunningReward:
    """The mean reward and its interval for rollouts in any order, at a constant cost per rollout."""

    MAX_OPEN = 4096
    """Largest number of tasks with rollouts to come; beyond it the oldest task counts as complete."""

    def __init__(self) -> None:
        self._count = 0
        self._total = ExactSum()
        self._low, self._high = math.inf, -math.inf
        self._open: dict[int, tuple[int, float]] = {}  # by task: rollouts, and the sum of their rewards
        self._folded = Moments()
        self._num_folded = 0

    def add(self, task_index: int, num_rollouts: int | None, reward: float) -> None:
        """Count a reward; `num_rollouts` is the number of rollouts of its task."""
        self._count += 1
        self._total.add(reward)
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        count, total = self._open.get(task_index, (0, 0.0))
        self._open[task_index] = (count + 1, total + reward)
        if count + 1 == num_rollouts:
            self._fold(task_index)
        elif len(self._open) > self.MAX_OPEN:
            self._fold(next(iter(self._open)))

    def estimate(self) -> Estimate | None:
        """Return the mean of all rewards so far; None before the first."""
        if not self._count:
            return None
        clusters = Moments(self._folded.weight, self._folded.mean, self._folded.squares)
        for count, total in self._open.values():
            clusters.add(total / count, count**2)
        tasks = self._num_folded + len(self._open)
        return _clustered_mean(self._total.value(), self._count, (self._low, self._high), clusters, tasks)

    def _fold(self, task_index: int) -> None:
        count, total = self._open.pop(task_index)
        self._folded.add(total / count, count**2)
        self._num_folded += 1


def _add_field(agent: _Agent, name: str, value: float) -> None:
    totals = agent.fields.get(name)
    if totals is None:
        if len(agent.fields) >= MAX_FIELDS:
            agent.fields_left_out += 1
            return
        totals = agent.fields[name] = FieldTotals()
    totals.add(value)


def _answer_key(answer: str | None) -> bytes | None:
    """Return a short key that is the same for equal answers only."""
    if answer is None:
        return None
    text = answer.encode("utf-8", "surrogatepass")
    short = len(text) <= _KEPT_ANSWER_BYTES
    return text if short else hashlib.blake2b(text, digest_size=_KEPT_ANSWER_BYTES + 1).digest()


def _default_ks(max_k: int) -> list[int]:
    powers = [1 << exponent for exponent in range(max_k.bit_length())]
    return [k for k in powers if k < max_k] + [max_k] * (max_k > 0)
