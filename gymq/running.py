"""Statistics of a run while it runs: rollouts in any order in, the same numbers as afterwards from the files out.

"The first k rollouts" of a task means the first by rollout index, so a task's rollouts are kept until all of them have
come. Then they are folded into sums, and only the sums remain: memory grows with the tasks that are under way, not with
the length of the run.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gymq.intervals import Interval, mean_interval
from gymq.member_totals import MemberStats, MemberTotals
from gymq.moments import Moments, is_usable
from gymq.open_tasks import Failed, OpenTasks, Scored
from gymq.score_totals import PERCENT, Curve, ScoreTotals

MAX_MEMBERS = 256
"""Numeric members profiled per agent; further names are counted in `members_left_out`."""

PASS_THRESHOLD = 1.0
"""Smallest reward with which a rollout passes, unless somebody says otherwise."""

MAX_SLOWEST = 20
"""Slowest rollouts that are remembered of a run."""

_KEPT_ANSWER_BYTES = 16


class Estimate(msgspec.Struct, frozen=True):
    """A mean over tasks with its 95 % confidence interval, where there are enough tasks for one."""

    value: float
    interval: Interval | None
    tasks: int


class AgentSnapshot(msgspec.Struct, frozen=True):
    """Statistics of one agent so far. pass@k, majority@k and no_answer are percentages."""

    rollouts: int  # with a reward
    tasks: int  # with at least one such rollout
    failures: dict[str, int]  # by failure class
    max_k: int  # largest number of rollouts of a task
    mean_reward: Estimate | None
    pass_at_k: dict[int, Estimate]
    avg_of_k: dict[int, float]  # pass@1[avg-of-k]
    majority_at_k: dict[int, float]  # empty where no rollout has an answer
    no_answer: float | None  # None where no rollout has an answer
    members: dict[str, MemberStats]
    members_left_out: int


class ProfileSnapshot(msgspec.Struct, frozen=True):
    """Statistics of a run so far."""

    agents: dict[str, AgentSnapshot]
    open_tasks: int  # tasks whose rollouts have not all come


class Slow(msgspec.Struct, frozen=True, array_like=True):
    """One of the rollouts of a run that took longest."""

    duration_s: float
    task_index: int
    rollout_index: int
    agent: str
    reward: float | None  # None: it failed


class _TaskTotals(msgspec.Struct):
    """What of an agent is added up when a task is folded."""

    passed: ScoreTotals  # 1 for a rollout that passes, 0 for one that does not
    tasks: int = 0
    score: ScoreTotals = msgspec.field(default_factory=ScoreTotals)
    # Mean reward of each task, weighted with the square of its number of rollouts: see `_mean_reward`.
    clusters: Moments = msgspec.field(default_factory=Moments)

    def fold(self, rollouts: Sequence[Scored], threshold: float) -> None:
        rewards = [rollout.reward for rollout in rollouts]
        self.tasks += 1
        self.passed.add([float(reward >= threshold) for reward in rewards])
        self.score.add(rewards, [rollout.answer for rollout in rollouts])
        self.clusters.add(math.fsum(rewards) / len(rewards), len(rewards) ** 2)


class _Agent(msgspec.Struct):
    folded: _TaskTotals = msgspec.field(default_factory=lambda: _TaskTotals(ScoreTotals()))
    reward: MemberTotals = msgspec.field(default_factory=MemberTotals)
    members: dict[str, MemberTotals] = {}
    members_left_out: int = 0
    without_answer: int = 0
    failures: dict[str, int] = {}


class _State(msgspec.Struct):
    pass_threshold: float
    agents: dict[str, _Agent] = {}
    tasks: OpenTasks = msgspec.field(default_factory=OpenTasks)
    slowest: list[Slow] = []  # slowest first


class RunningProfile:
    """Statistics of one run, rollout by rollout. Messages that come twice count once."""

    def __init__(self, pass_threshold: float = PASS_THRESHOLD) -> None:
        """
        Args:
            pass_threshold: the smallest reward with which a rollout passes, for pass@k.
        """
        self._state = _State(pass_threshold)

    @classmethod
    def from_state(cls, state: bytes) -> RunningProfile:
        """Go on from what `state` returned.

        Raises:
            ValueError: these bytes are no such state.
        """
        profile = cls()
        try:
            profile._state = msgspec.msgpack.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the saved state of the profile cannot be read: {error}") from None
        return profile

    def state(self) -> bytes:
        """Everything known, as msgpack."""
        return msgspec.msgpack.encode(self._state)

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
            num_rollouts: how many rollouts the task has in all. A task for which nobody says so stays open.
            answer: what the rollout answered, for the majority; None if it gave no answer.
            numbers: numeric members to profile beside the reward. Those that are not finite count as missing.

        Returns:
            False if the rollout was there before or its task is folded already; then nothing is counted.

        Raises:
            ValueError: the reward is not finite, or too large for statistics.
        """
        if not is_usable(reward):
            raise ValueError(f"rollout {(task_index, rollout_index)}: the reward is {reward}, no usable number")
        scored = Scored(agent, float(reward), _answer_key(answer))
        if not self._state.tasks.add(task_index, rollout_index, scored, num_rollouts):
            return False
        totals = self._agent(agent)
        totals.reward.add(float(reward))
        totals.without_answer += answer is None
        for name, value in (numbers or {}).items():
            if name != "reward" and is_usable(value):
                _add_member(totals, name, float(value))
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
        attempt: int = 0,
    ) -> bool:
        """Add a failed attempt at a rollout.

        Args:
            agent: who made it.
            task_index: its task.
            rollout_index: its place among the task's rollouts.
            failure_class: why it failed.
            final: whether no further attempt can follow. The task is not kept open for such a rollout.
            num_rollouts: how many rollouts the task has in all.
            attempt: attempts made before this one; tells a second failure from a repeated message.

        Returns:
            False if this attempt, a later one or a reward was there before, or the task is folded already; then
            nothing is counted.
        """
        if not self._state.tasks.add(task_index, rollout_index, Failed(attempt, final), num_rollouts):
            return False
        failures = self._agent(agent).failures
        failures[failure_class] = failures.get(failure_class, 0) + 1
        self._fold(self._state.tasks.close_if_complete(task_index))
        return True

    def note_duration(self, slow: Slow) -> None:
        """Remember a rollout or a failed attempt if it is one of the slowest; of several attempts the slowest."""
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
        """The `MAX_SLOWEST` rollouts that took longest, the slowest first."""
        return tuple(self._state.slowest)

    def reward_counts(self, agent: str) -> Mapping[float, int] | None:
        """How often each reward was given to an agent; None: there are too many different ones to count them."""
        values = self._agent(agent).reward.values
        return None if values is None else dict(values)

    def snapshot(self, ks: Iterable[int] | None = None) -> ProfileSnapshot:
        """Statistics of everything that has come, open tasks with the rollouts they have so far.

        Args:
            ks: the k's wanted; default: the powers of two below the largest number of rollouts of a task, and that.
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
    members = {"reward": agent.reward, **agent.members} if rollouts_scored else {}
    return AgentSnapshot(
        rollouts=rollouts_scored,
        tasks=totals.tasks,
        failures=dict(agent.failures),
        max_k=score.max_k,
        mean_reward=_mean_reward(agent.reward, totals),
        pass_at_k={k: _pass_at(totals.passed, k) for k in ks},
        avg_of_k=_percentages(score.average, ks),
        majority_at_k=_percentages(score.majority, ks) if has_answers else {},
        no_answer=PERCENT * agent.without_answer / rollouts_scored if has_answers else None,
        members={name: member.stats(single=rollouts_scored == 1) for name, member in members.items()},
        members_left_out=agent.members_left_out,
    )


def _pass_at(passed: ScoreTotals, k: int) -> Estimate:
    total = passed.pass_at(k)
    return Estimate(PERCENT * total.mean, passed.pass_interval(k), round(total.weight))


def _percentages(curve: Curve, ks: Sequence[int]) -> dict[int, float]:
    means = {k: curve.mean(k) for k in ks}
    return {k: PERCENT * mean for k, mean in means.items() if mean is not None}


def _mean_reward(reward: MemberTotals, totals: _TaskTotals) -> Estimate | None:
    """Mean over rollouts; its standard error takes the rollouts of a task for one cluster.

    With n rollouts in all, the squared error is the sum over tasks of (rollouts * (task's mean - mean))² / n², times
    T / (T - 1) for T tasks. Source: clustered standard errors in Miller, arXiv:2411.00640.
    """
    if not reward.count:
        return None
    mean, clusters, tasks = reward.total.value() / reward.count, totals.clusters, totals.tasks
    interval = None
    if tasks > 1:
        squares = clusters.squares + clusters.weight * (clusters.mean - mean) ** 2
        std_error = math.sqrt(max(0.0, squares) * tasks / (tasks - 1)) / reward.count
        bounds = (0.0, 1.0) if reward.low >= 0 and reward.high <= 1 else None
        interval = mean_interval(mean, std_error, tasks, bounds)
    return Estimate(mean, interval, tasks)


def _add_member(agent: _Agent, name: str, value: float) -> None:
    member = agent.members.get(name)
    if member is None:
        if len(agent.members) >= MAX_MEMBERS:
            agent.members_left_out += 1
            return
        member = agent.members[name] = MemberTotals()
    member.add(value)


def _answer_key(answer: str | None) -> bytes | None:
    """Something short that is the same for equal answers only."""
    if answer is None:
        return None
    text = answer.encode("utf-8", "surrogatepass")
    short = len(text) <= _KEPT_ANSWER_BYTES
    return text if short else hashlib.blake2b(text, digest_size=_KEPT_ANSWER_BYTES + 1).digest()


def _default_ks(max_k: int) -> list[int]:
    powers = [1 << exponent for exponent in range(max_k.bit_length())]
    return [k for k in powers if k < max_k] + [max_k] * (max_k > 0)
