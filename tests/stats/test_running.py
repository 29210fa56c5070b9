"""The live profile against the one made afterwards, under any order of arrival, repetition and restarts."""

import random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.stats.running import MAX_FIELDS, MAX_SLOWEST, ProfileSnapshot, RunningProfile, RunningReward, Slow
from tests.support.reports import report

from . import oracle

AGENT = "ag"


class Arrival(NamedTuple):
    task: int
    rollout: int
    num_rollouts: int | None
    reward: float | None  # None: a final failure
    answer: str | None
    tokens: int | None


class Run(NamedTuple):
    arrivals: list[Arrival]
    answers: bool


@st.composite
def runs(draw: st.DrawFn) -> Run:
    with_answers = draw(st.booleans())
    rewards = st.sampled_from([0.0, 1.0]) if draw(st.booleans()) else st.sampled_from([0.0, 1.0, 0.1, 0.3, -2.5])
    answer = st.sampled_from(["a", "b", "a much longer answer than fits", None]) if with_answers else st.none()
    arrivals = []
    for task in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 5))
        known = draw(st.booleans())
        for rollout in range(count):
            reward = draw(st.one_of(rewards, st.none()))
            tokens = draw(st.one_of(st.none(), st.integers(0, 3)))
            arrivals.append(Arrival(task, rollout, count if known else None, reward, draw(answer), tokens))
    return Run(arrivals, with_answers and any(a.answer is not None and a.reward is not None for a in arrivals))


def feed(running: RunningProfile, arrival: Arrival) -> bool:
    place: dict[str, Any] = {"num_rollouts": arrival.num_rollouts}
    if arrival.reward is None:
        return running.add_failure(
            AGENT, arrival.task, arrival.rollout, failure_class="agent_failed", final=True, **place
        )
    numbers = {} if arrival.tokens is None else {"tokens": arrival.tokens}
    return running.add(
        AGENT, arrival.task, arrival.rollout, reward=arrival.reward, answer=arrival.answer, numbers=numbers, **place
    )


def check(snapshot: ProfileSnapshot, arrivals: list[Arrival], answers: bool) -> None:
    """Compare with the statistics made from all arrivals at once."""
    scored = sorted(a for a in arrivals if a.reward is not None)
    results: list[dict[str, Any]] = [
        {"_ng_task_index": a.task, "_ng_rollout_index": a.rollout, "reward": a.reward, "response": {}}
        | ({} if a.tokens is None else {"tokens": a.tokens})
        | ({} if a.answer is None else {"ans": a.answer})
        for a in scored
    ]
    agent = snapshot.agents[AGENT]
    assert snapshot.all == agent
    assert agent.num_failed == len(arrivals) - len(scored)
    if agent.lower_bound is not None:
        zeros: dict[int, oracle.Task] = {}
        for arrival in arrivals:
            zeros.setdefault(arrival.task, []).append((arrival.reward or 0.0, None))
        assert agent.lower_bound == pytest.approx(oracle.mean_reward(list(zeros.values())))
        assert agent.mean_reward is None or agent.lower_bound <= agent.mean_reward.value + 1e-12
    assert agent.rollouts == len(scored)
    if scored:
        _check_fields(agent, results)
        _check_passk(agent, results, answers)
    else:
        assert (agent.mean_reward, agent.pass_at_k, agent.fields) == (None, {}, {})


def _check_fields(agent: Any, results: list[dict[str, Any]]) -> None:
    rows = [{**result, "agent_ref": {"name": AGENT}} for result in results]
    expected = {name: value for name, value in report(rows, results).agents[0].items() if name != "agent_ref"}
    found = {
        f"{statistic}/{name}": getattr(stats, statistic)
        for name, stats in agent.fields.items()
        for statistic in ("mean", "max", "min", "median", "std")
        if getattr(stats, statistic) is not None
    }
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def _check_passk(agent: Any, results: list[dict[str, Any]], answers: bool) -> None:
    by_task: dict[int, oracle.Task] = {}
    for result in results:
        by_task.setdefault(result["_ng_task_index"], []).append((result["reward"], result.get("ans")))
    tasks = list(by_task.values())
    assert (agent.max_k, agent.tasks) == (max(map(len, tasks)), len(tasks))
    for k in range(1, agent.max_k + 1):
        assert agent.pass_at_k[k].value == pytest.approx(oracle.pass_at_k(tasks, k), rel=1e-9, abs=1e-9)
    assert agent.mean_reward.value == pytest.approx(oracle.mean_reward(tasks), rel=1e-9, abs=1e-9)
    if all(reward in (0, 1) for task in tasks for reward, _ in task):
        assert 100 * agent.mean_reward.value == pytest.approx(agent.pass_at_k[1].value)
    if answers:
        assert agent.majority.value == pytest.approx(oracle.majority(tasks), rel=1e-9, abs=1e-9)
        no_answer = 100 * sum("ans" not in result for result in results) / len(results)
        assert agent.no_answer == pytest.approx(no_answer)
    else:
        assert (agent.majority, agent.no_answer) == (None, None)


@given(runs(), st.randoms(use_true_random=False))
def test_the_numbers_are_those_of_the_files_in_whatever_order_rollouts_come(run: Run, random) -> None:
    running = RunningProfile()
    for arrival in random.sample(run.arrivals, len(run.arrivals)):
        assert feed(running, arrival)
    check(running.snapshot(range(1, 10)), run.arrivals, run.answers)


@given(runs(), st.randoms(use_true_random=False), st.data())
def test_a_restart_in_the_middle_changes_nothing(run: Run, random, data: st.DataObject) -> None:
    arrivals = random.sample(run.arrivals, len(run.arrivals))
    cut = data.draw(st.integers(0, len(arrivals)))
    running, unbroken = RunningProfile(), RunningProfile()
    for arrival in arrivals[:cut]:
        feed(running, arrival)
    running = RunningProfile.from_state(running.state())
    for arrival in arrivals[cut:]:
        feed(running, arrival)
    for arrival in arrivals:
        feed(unbroken, arrival)
    assert running.snapshot() == unbroken.snapshot()


@given(runs(), st.randoms(use_true_random=False), st.data())
def test_what_has_come_so_far_is_profiled_while_tasks_are_open(run: Run, random, data: st.DataObject) -> None:
    arrivals = random.sample(run.arrivals, data.draw(st.integers(1, len(run.arrivals))))
    running = RunningProfile()
    for arrival in arrivals:
        feed(running, arrival)
    answers = any(a.answer is not None and a.reward is not None for a in arrivals)
    check(running.snapshot(range(1, 10)), arrivals, answers)


@given(runs(), st.randoms(use_true_random=False))
def test_messages_that_come_twice_count_once(run: Run, random) -> None:
    running = RunningProfile()
    for arrival in random.sample(run.arrivals * 2, 2 * len(run.arrivals)):
        feed(running, arrival)
    check(running.snapshot(range(1, 10)), run.arrivals, run.answers)


def test_complete_tasks_are_not_kept() -> None:
    running = RunningProfile()
    for task in range(5000):
        for rollout in (1, 0):
            running.add(AGENT, task, rollout, reward=float(rollout), num_rollouts=2, answer=f"answer {task}" * 10)
    assert running.snapshot().open_tasks == 0
    assert len(running.state()) < 5 * 5000  # bytes; no five bytes a task


def test_tasks_that_complete_in_any_order_are_remembered_in_little_space() -> None:
    running = RunningProfile()
    for start in (1, 0, 2):
        for task in range(start, 5000, 3):
            running.add(AGENT, task, 0, reward=0.0, num_rollouts=1)
    assert len(running.state()) < 5 * 5000
    assert not any(running.add(AGENT, task, 0, reward=1.0, num_rollouts=1) for task in range(5000))


@pytest.mark.parametrize("arrivals", [((0, 2), (2, 4), (3, 4), (1, 2)), ((0, 2), (1, 2), (2, 4), (3, 4))])
def test_a_task_that_was_given_more_rollouts_is_seen_and_counted_whole_with_the_new_number(
    arrivals: tuple[tuple[int, int], ...],
) -> None:
    running = RunningProfile()
    for rollout in (0, 1):
        assert running.add(AGENT, 7, rollout, reward=float(rollout), num_rollouts=2)
    assert not running.is_outgrown(7, 2)
    assert not running.is_outgrown(8, 4)
    assert running.is_outgrown(7, 4)
    assert not running.knows_extension(4)
    extended = RunningProfile(extended_to=4)
    assert extended.knows_extension(4)
    # What was submitted before says 2; one of those may come late.
    for rollout, num_rollouts in arrivals:
        assert extended.snapshot().open_tasks == (rollout != 0)
        assert extended.add(AGENT, 7, rollout, reward=float(rollout == 1), num_rollouts=num_rollouts)
    agent = extended.snapshot().agents[AGENT]
    assert (agent.max_k, agent.tasks, agent.pass_at_k[1].value, agent.pass_at_k[4].value) == (4, 1, 25.0, 100.0)
    assert extended.snapshot().open_tasks == 0
    assert RunningProfile.from_state(extended.state()).knows_extension(4)


def test_a_task_has_as_many_rollouts_as_any_of_them_says() -> None:
    running = RunningProfile()
    for rollout, num_rollouts in ((2, 4), (0, 2), (1, 2)):
        assert running.add(AGENT, 7, rollout, reward=1.0, num_rollouts=num_rollouts)
    assert running.snapshot().open_tasks == 1


def test_a_failure_that_may_be_tried_again_keeps_its_task_open_until_the_reward_comes() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0, num_rollouts=2)
    assert running.add_failure(AGENT, 0, 1, failure_class="no_worker", final=False, num_rollouts=2)
    assert running.snapshot().open_tasks == 1
    assert running.add(AGENT, 0, 1, reward=0.0, num_rollouts=2)
    snapshot = running.snapshot()
    assert snapshot.open_tasks == 0
    assert snapshot.agents[AGENT].rollouts == 2
    assert (snapshot.agents[AGENT].failures, snapshot.agents[AGENT].failed_attempts) == ({}, {"no_worker": 1})


def test_each_failed_attempt_counts_once_and_a_failed_rollout_by_its_last() -> None:
    running = RunningProfile()
    running.add_failure(AGENT, 0, 0, order=-1, failure_class="judge_failed", final=False)
    running = RunningProfile.from_state(running.state())
    orders = (0, 0, 1, 0, 2)
    added = [running.add_failure(AGENT, 0, 0, order=o, failure_class="no_worker", final=False) for o in orders]
    assert added == [True, False, True, False, True]
    agent = running.snapshot().agents[AGENT]
    assert (agent.failures, agent.failed_attempts) == ({"no_worker": 1}, {"judge_failed": 1, "no_worker": 3})


def test_a_failure_after_the_reward_is_not_counted() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0)
    assert not running.add_failure(AGENT, 0, 0, failure_class="no_worker", final=True)
    assert running.snapshot().agents[AGENT].failures == {}


def test_a_task_of_failures_only_is_closed_and_counts_nowhere() -> None:
    running = RunningProfile()
    running.add_failure(AGENT, 0, 0, failure_class="agent_failed", final=True, num_rollouts=1)
    running.add(AGENT, 1, 0, reward=1.0, num_rollouts=1)
    snapshot = running.snapshot()
    assert (snapshot.open_tasks, snapshot.agents[AGENT].tasks) == (0, 1)
    assert snapshot.agents[AGENT].pass_at_k[1].value == 100.0


def test_agents_are_profiled_apart_even_in_one_task() -> None:
    running = RunningProfile()
    running.add("x", 0, 0, reward=1.0, num_rollouts=2)
    running.add("y", 0, 1, reward=0.0, num_rollouts=2)
    snapshot = running.snapshot()
    assert {name: agent.pass_at_k[1].value for name, agent in snapshot.agents.items()} == {"x": 100.0, "y": 0.0}
    assert snapshot.open_tasks == 0


@given(runs(), st.integers(2, 3))
def test_all_agents_together_are_one_agent_with_the_tasks_of_all(run: Run, num_agents: int) -> None:
    apart, together = RunningProfile(), RunningProfile()
    for arrival in run.arrivals:
        for profile, agent in ((apart, f"a{arrival.task % num_agents}"), (together, AGENT)):
            place: dict[str, Any] = {"num_rollouts": arrival.num_rollouts}
            if arrival.reward is None:
                profile.add_failure(agent, *arrival[:2], failure_class="agent_failed", final=True, **place)
            else:
                numbers = {"tokens": arrival.tokens or 0}
                profile.add(agent, *arrival[:2], reward=arrival.reward, answer=arrival.answer, numbers=numbers, **place)
    found, expected = apart.snapshot().all, together.snapshot().all
    assert msgspec.to_builtins(found, str_keys=True) == approximately(msgspec.to_builtins(expected, str_keys=True))


def approximately(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: approximately(inner) for name, inner in value.items()}
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


def test_failed_rollouts_count_as_0_in_the_lower_bound_and_nowhere_else() -> None:
    running = RunningProfile()
    tasks: list[list[float | None]] = [[1.0, 1.0, None, None], [1.0, None, None, None], [None] * 4]
    for task, rewards in enumerate(tasks):
        for rollout, reward in enumerate(rewards):
            if reward is None:
                running.add_failure(AGENT, task, rollout, failure_class="agent_failed", final=True, num_rollouts=4)
            else:
                running.add(AGENT, task, rollout, reward=reward, num_rollouts=4)
    agent = running.snapshot().agents[AGENT]
    assert agent.mean_reward is not None
    assert (agent.mean_reward.value, agent.mean_reward.tasks, agent.num_failed) == (1.0, 2, 9)
    assert agent.lower_bound == pytest.approx((0.5 + 0.25 + 0) / 3)
    assert list(agent.pass_at_k_of_all()) == [1]
    running.add(AGENT, 9, 0, reward=-1.0)
    assert running.snapshot().agents[AGENT].lower_bound is None


def test_tasks_count_the_same_however_many_rollouts_they_have() -> None:
    running = RunningProfile()  # as of four rows of which two are equal
    for task, rewards in enumerate(([1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0])):
        for rollout, reward in enumerate(rewards):
            running.add(AGENT, task, rollout, reward=reward, num_rollouts=len(rewards))
    agent = running.snapshot().agents[AGENT]
    assert agent.mean_reward is not None
    assert 100 * agent.mean_reward.value == agent.pass_at_k[1].value == pytest.approx(100 / 3)
    assert list(agent.pass_at_k_of_all()) == [1, 2, 4]


def test_the_ks_are_powers_of_two_and_the_largest() -> None:
    running = RunningProfile()
    for rollout in range(6):
        running.add(AGENT, 0, rollout, reward=0.0)
    assert list(running.snapshot().agents[AGENT].pass_at_k) == [1, 2, 4, 6]
    assert list(running.snapshot([3, 9, 0, 3]).agents[AGENT].pass_at_k) == [3]


def test_the_interval_of_the_mean_reward_takes_a_task_for_one_observation() -> None:
    running = RunningProfile()
    for task, rewards in enumerate([[0.0, 0.4], [0.2, 0.2], [0.5, 0.5]]):
        for rollout, reward in enumerate(rewards):
            running.add(AGENT, task, rollout, reward=reward, num_rollouts=2)
    estimate = running.snapshot().agents[AGENT].mean_reward
    assert estimate is not None
    assert estimate.value == pytest.approx(0.3)
    std_error = 0.1 * 3**0.5 / 3**0.5  # the tasks' means 0.2, 0.2, 0.5 deviate by 0.1 * sqrt(3)
    assert estimate.interval is not None
    assert estimate.interval.low == 0.0
    assert estimate.interval.high == pytest.approx(0.3 + 4.302653 * std_error, abs=1e-6)


def test_rounding_errors_are_not_taken_for_spread() -> None:
    running = RunningProfile()
    for task in range(30):
        for rollout in range(1 + task % 7):
            running.add(AGENT, task, rollout, reward=0.1, num_rollouts=1 + task % 7)
    agent = running.snapshot().agents[AGENT]
    assert agent.mean_reward is not None
    assert agent.mean_reward.interval is None
    assert agent.pass_at_k[1].interval is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e200])
def test_a_reward_that_would_spoil_the_statistics_is_refused_and_leaves_no_trace(reward: float) -> None:
    running = RunningProfile()
    with pytest.raises(ValueError, match=r"rollout \(3, 1\): the reward is"):
        running.add(AGENT, 3, 1, reward=reward, num_rollouts=1)
    assert running.snapshot() == RunningProfile().snapshot()


def test_a_field_that_is_no_usable_number_counts_as_missing() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0, numbers={"a": float("nan"), "b": 2, "reward": 5.0})
    fields = running.snapshot().agents[AGENT].fields
    assert {name: stats.mean for name, stats in fields.items()} == {"reward": 1.0, "b": 2.0}


def test_a_verifier_that_invents_field_names_does_not_fill_the_memory() -> None:
    running = RunningProfile()
    for task, agent in enumerate((AGENT, "other")):
        for rollout in range(MAX_FIELDS + 10):
            running.add(agent, task, rollout, reward=1.0, numbers={f"field{rollout}": 1.0})
    snapshot = running.snapshot()
    assert len(snapshot.agents[AGENT].fields) == MAX_FIELDS + 1
    assert snapshot.agents[AGENT].fields_left_out == 10
    assert snapshot.all is not None
    assert snapshot.all.fields_left_out == 20


def test_of_several_attempts_the_slowest_is_among_the_slowest_rollouts() -> None:
    running = RunningProfile()
    for task in range(MAX_SLOWEST + 1):
        for seconds in (1.0, 3.0, 2.0):
            running.note_duration(Slow(task + seconds, task, 0, AGENT, None))
    found = [(slow.task_index, slow.duration_s) for slow in running.slowest()]
    assert found == [(task, task + 3.0) for task in range(MAX_SLOWEST, 0, -1)]


def test_a_snapshot_can_be_written_as_json() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0)
    assert msgspec.json.decode(msgspec.json.encode(running.snapshot()), type=ProfileSnapshot) == running.snapshot()


@pytest.mark.parametrize("state", [b"", b"\x00", b'{"agents": 1}'])
def test_a_state_that_cannot_be_read_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError, match="saved state of the profile cannot be read"):
        RunningProfile.from_state(state)


def test_pass_at_k_counts_rollouts_that_pass_whatever_the_first_of_them_got() -> None:
    for threshold, pass_at_1 in ((1.0, 0.0), (0.9, 50.0), (0.0, 100.0)):
        running = RunningProfile(pass_threshold=threshold)
        for rollout, reward in enumerate([0, 0.9, 0, 0.9, 0, 0.9, 0, 0.9]):
            running.add(AGENT, 0, rollout, reward=reward, num_rollouts=8)
        agent = running.snapshot([1, 4]).agents[AGENT]
        assert agent.mean_reward is not None
        assert agent.mean_reward.value == pytest.approx(0.45)
        assert agent.pass_at_k[1].value == pytest.approx(pass_at_1)


class TestRunningReward:
    @pytest.mark.parametrize("bounded", [True, False])
    def test_it_is_the_estimate_of_the_profile_whatever_comes_first(self, bounded: bool) -> None:
        rng = random.Random(7)
        rollouts = [
            (task, index, rng.random() * (1 if bounded else 3)) for task in range(9) for index in range(task + 1)
        ]
        rng.shuffle(rollouts)
        reward, profile = RunningReward(), RunningProfile()
        assert reward.estimate() is None
        for task, index, value in rollouts[:-5]:  # some tasks stay open
            reward.add(task, task + 1, value)
            profile.add("a", task, index, reward=value, num_rollouts=task + 1)
            expected = profile.snapshot(ks=[]).agents["a"].mean_reward
            assert expected is not None
            found = reward.estimate()
            assert found is not None
            assert found.value == pytest.approx(expected.value)
            assert found.tasks == expected.tasks
            assert (found.interval is None) == (expected.interval is None)
            if found.interval and expected.interval:
                assert found.interval.low == pytest.approx(expected.interval.low)
                assert found.interval.high == pytest.approx(expected.interval.high)

    def test_open_tasks_beyond_its_bound_are_folded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RunningReward, "MAX_OPEN", 2)
        reward = RunningReward()
        for task in range(5):
            reward.add(task, 2, float(task))
        assert len(reward._open) == 2
        found = reward.estimate()
        assert found is not None
        assert (found.value, found.tasks) == (2.0, 5)
