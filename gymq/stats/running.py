"""Statistics of a run in progress: from rollouts in any order, the same numbers as later from the files.

Mean reward, pass@k and majority are means over tasks, so that each task counts the same however many of its rollouts
have a reward. A task's rollouts are kept until all of them have arrived. Then they are folded into sums, and only the
sums remain: memory grows with the tasks in progress, not with the length of the run.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gymq.defaults import PASS_THRESHOLD
from gymq.stats.agent_totals import AgentTotals, TaskTotals
from gymq.stats.field_totals import FieldStats, FieldTotals
from gymq.stats.intervals import Estimate, TaskMeans
from gymq.stats.open_tasks import Failed, OpenTasks, Scored, TaskRollouts
from gymq.stats.pass_at_k import PERCENT
from gymq.stats.sums import is_usable

MAX_FIELDS = 256
"""Numeric fields profiled per agent; further ones are counted in `fields_left_out`."""

MAX_SLOWEST = 20
"""Slowest rollouts that are remembered of a run."""

_KEPT_ANSWER_BYTES = 16


class AgentSnapshot(msgspec.Struct, frozen=True):
    """Statistics of one agent, or of all together, so far. pass@k, majority and no_answer are percentages."""

    rollouts: int  # with a reward
    tasks: int  # with at least one such rollout
    failures: dict[str, int]  # rollouts whose outcome is a failure, by its class
    max_k: int  # largest number of rollouts of a task
    mean_reward: Estimate | None  # over tasks, of the mean of the task's rollouts that have a reward
    lower_bound: float | None  # the mean reward if failed rollouts had 0; None: none failed, or some reward is below 0
    pass_at_k: dict[int, Estimate]  # each over the tasks with at least k rewards
    majority: Estimate | None  # tasks whose most frequent answer passes; None where no rollout has an answer
    no_answer: float | None  # None where no rollout has an answer
    fields: dict[str, FieldStats]
    fields_left_out: int
    failed_attempts: dict[str, int] = {}  # by failure class; those that a later outcome replaced count too

    @property
    def num_failed(self) -> int:
        """Rollouts whose outcome is a failure."""
        return sum(self.failures.values())

    def pass_at_k_of_all(self) -> dict[int, Estimate]:
        """Return pass@k for the k that every task has so many rewards for, so that all are about the same tasks."""
        return {k: estimate for k, estimate in self.pass_at_k.items() if estimate.tasks == self.tasks}


class ProfileSnapshot(msgspec.Struct, frozen=True):
    """Statistics of a run so far."""

    agents: dict[str, AgentSnapshot]
    all: AgentSnapshot | None  # all agents together: means over the tasks of all of them; None before any outcome
    open_tasks: int  # tasks whose rollouts have not all come
    pass_threshold: float  # smallest reward with which a rollout passes


class Slow(msgspec.Struct, frozen=True, array_like=True):
    """One of the slowest rollouts of a run."""

    duration_s: float
    task_index: int
    rollout_index: int
    agent: str
    reward: float | None  # None: it failed


class _State(msgspec.Struct):
    pass_threshold: float
    agents: dict[str, AgentTotals] = {}
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
        found: dict[str, AgentTotals] = {}
        for name, agent in sorted(self._state.agents.items()):
            found[name] = msgspec.structs.replace(agent, folded=TaskTotals())
            found[name].folded.merge(agent.folded)
        for task in self._state.tasks.rollouts():
            for name, rollouts in task.items():
                found[name].folded.fold(rollouts, self._state.pass_threshold)
        wanted = None if ks is None else sorted(set(ks))
        agents = {name: _snapshot(agent, wanted) for name, agent in found.items()}
        whole = next(iter(agents.values()), None)
        if len(agents) > 1:
            together = AgentTotals()
            for agent in found.values():
                together.merge(agent)
            whole = _snapshot(together, wanted)
        return ProfileSnapshot(agents, whole, len(self._state.tasks), self._state.pass_threshold)

    def _agent(self, name: str) -> AgentTotals:
        return self._state.agents.setdefault(name, AgentTotals())

    def _forget(self, failure: Failed | None) -> None:
        """Stop counting a failure that another outcome replaces."""
        if failure is not None:
            failures = self._agent(failure.agent).failures
            failures[failure.failure_class] -= 1
            if not failures[failure.failure_class]:
                del failures[failure.failure_class]

    def _fold(self, task: Mapping[str, TaskRollouts]) -> None:
        for agent, rollouts in task.items():
            self._agent(agent).folded.fold(rollouts, self._state.pass_threshold)


def _snapshot(agent: AgentTotals, ks: Sequence[int] | None) -> AgentSnapshot:
    totals, num_scored = agent.folded, agent.reward.count
    max_k = totals.passed.max_k
    rates = {k: totals.passed.percent_at(k) for k in (_default_ks(max_k) if ks is None else ks) if k > 0}
    has_answers = agent.without_answer < num_scored
    fields = {"reward": agent.reward, **agent.fields} if num_scored else {}
    return AgentSnapshot(
        rollouts=num_scored,
        tasks=totals.rewards.num_tasks,
        failures=dict(agent.failures),
        max_k=max_k,
        mean_reward=totals.rewards.estimate(_bounds(agent.reward.low, agent.reward.high)),
        lower_bound=totals.failed_as_0.mean() if agent.failures and agent.reward.low >= 0 else None,
        pass_at_k={k: rate for k, rate in rates.items() if rate is not None},
        majority=totals.majority.estimate((0.0, PERCENT), PERCENT) if has_answers else None,
        no_answer=PERCENT * agent.without_answer / num_scored if has_answers else None,
        fields={name: field.stats(single=num_scored == 1) for name, field in fields.items()},
        fields_left_out=agent.fields_left_out,
        failed_attempts=dict(agent.failed_attempts),
    )


def _bounds(low: float, high: float) -> tuple[float, float] | None:
    """Return the limits of a mean of rewards of which these are the extremes: 0 and 1 where all are between them."""
    return (0.0, 1.0) if low >= 0 and high <= 1 else None


class RunningReward:
    """The mean reward and its interval for rollouts in any order, at a constant cost per rollout."""

    MAX_OPEN = 4096
    """Largest number of tasks with rollouts to come; beyond it the oldest task counts as complete."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf
        self._open: dict[int, tuple[int, float]] = {}  # by task: rollouts, and the sum of their rewards
        self._folded = TaskMeans()

    def add(self, task_index: int, num_rollouts: int | None, reward: float) -> None:
        """Count a reward; `num_rollouts` is the number of rollouts of its task."""
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        count, total = self._open.get(task_index, (0, 0.0))
        self._open[task_index] = (count + 1, total + reward)
        if count + 1 == num_rollouts:
            self._fold(task_index)
        elif len(self._open) > self.MAX_OPEN:
            self._fold(next(iter(self._open)))

    def estimate(self) -> Estimate | None:
        """Return the mean over the tasks so far; None before the first reward."""
        means = TaskMeans()
        means.merge(self._folded)
        for count, total in self._open.values():
            means.add(total / count)
        return means.estimate(_bounds(self._low, self._high))

    def _fold(self, task_index: int) -> None:
        count, total = self._open.pop(task_index)
        self._folded.add(total / count)


def _add_field(agent: AgentTotals, name: str, value: float) -> None:
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
