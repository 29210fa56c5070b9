"""The live profile against the one made afterwards, under any order of arrival, repetition and restarts."""

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.passk import pass_at_k_metrics
from gymq.profile import profile
from gymq.running import MAX_MEMBERS, ProfileSnapshot, RunningProfile

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
    results = [
        {"_ng_task_index": a.task, "_ng_rollout_index": a.rollout, "reward": a.reward, "response": {}}
        | ({} if a.tokens is None else {"tokens": a.tokens})
        | ({} if a.answer is None else {"ans": a.answer})
        for a in scored
    ]
    agent = snapshot.agents[AGENT]
    assert sum(agent.failures.values()) == len(arrivals) - len(scored)
    assert agent.rollouts == len(scored)
    if scored:
        _check_members(agent, results)
        _check_passk(agent, results, answers)
    else:
        assert (agent.mean_reward, agent.pass_at_k, agent.members) == (None, {}, {})


def _check_members(agent: Any, results: list[dict[str, Any]]) -> None:
    rows = [{**result, "agent_ref": {"name": AGENT}} for result in results]
    expected = {name: value for name, value in profile(rows, results).agents[0].items() if name != "agent_ref"}
    found = {
        f"{statistic}/{name}": getattr(stats, statistic)
        for name, stats in agent.members.items()
        for statistic in ("mean", "max", "min", "median", "std")
        if getattr(stats, statistic) is not None
    }
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert agent.mean_reward.value == pytest.approx(expected["mean/reward"], rel=1e-9, abs=1e-9)


def _check_passk(agent: Any, results: list[dict[str, Any]], answers: bool) -> None:
    by_task: dict[int, list[dict[str, Any]]] = {}
    for result in results:
        by_task.setdefault(result["_ng_task_index"], []).append(result)
    found = pass_at_k_metrics(list(by_task.values()), answer_key="ans")
    passes = [[{"reward": float(result["reward"] >= 1)} for result in task] for task in by_task.values()]
    passed = pass_at_k_metrics(passes)
    assert (agent.max_k, agent.tasks) == (found.max_k, len(by_task))
    for k in range(1, found.max_k + 1):
        name = f"pass@{k}/accuracy"
        assert agent.pass_at_k[k].value == pytest.approx(passed.metrics[name], rel=1e-9, abs=1e-9)
        interval = passed.intervals.get(name)
        assert (agent.pass_at_k[k].interval is None) == (interval is None)
        if interval is not None:
            bounds = msgspec.structs.astuple(agent.pass_at_k[k].interval)
            assert bounds == pytest.approx(msgspec.structs.astuple(interval), rel=1e-9, abs=1e-9)
        assert agent.avg_of_k[k] == pytest.approx(found.metrics[f"pass@1[avg-of-{k}]/accuracy"], rel=1e-9, abs=1e-9)
        if answers:
            assert agent.majority_at_k[k] == pytest.approx(found.metrics[f"majority@{k}/accuracy"], rel=1e-9, abs=1e-9)
    if answers:
        no_answer = 100 * sum("ans" not in result for result in results) / len(results)
        assert agent.no_answer == pytest.approx(no_answer)
    else:
        assert (agent.majority_at_k, agent.no_answer) == ({}, None)


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


def test_a_failure_that_may_be_tried_again_keeps_its_task_open_until_the_reward_comes() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0, num_rollouts=2)
    assert running.add_failure(AGENT, 0, 1, failure_class="no_worker", final=False, num_rollouts=2)
    assert running.snapshot().open_tasks == 1
    assert running.add(AGENT, 0, 1, reward=0.0, num_rollouts=2)
    snapshot = running.snapshot()
    assert snapshot.open_tasks == 0
    assert snapshot.agents[AGENT].rollouts == 2
    assert snapshot.agents[AGENT].failures == {"no_worker": 1}


def test_each_failed_attempt_counts_once() -> None:
    running = RunningProfile()
    failure = {"failure_class": "no_worker", "final": False}
    added = [running.add_failure(AGENT, 0, 0, attempt=attempt, **failure) for attempt in (0, 0, 1, 0, 2)]
    assert added == [True, False, True, False, True]
    assert running.snapshot().agents[AGENT].failures == {"no_worker": 3}


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


def test_a_member_that_is_no_usable_number_counts_as_missing() -> None:
    running = RunningProfile()
    running.add(AGENT, 0, 0, reward=1.0, numbers={"a": float("nan"), "b": 2, "reward": 5.0})
    members = running.snapshot().agents[AGENT].members
    assert {name: stats.mean for name, stats in members.items()} == {"reward": 1.0, "b": 2.0}


def test_a_verifier_that_invents_member_names_does_not_fill_the_memory() -> None:
    running = RunningProfile()
    for rollout in range(MAX_MEMBERS + 10):
        running.add(AGENT, 0, rollout, reward=1.0, numbers={f"member{rollout}": 1.0})
    agent = running.snapshot().agents[AGENT]
    assert len(agent.members) == MAX_MEMBERS + 1
    assert agent.members_left_out == 10


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
