import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.passk import MetricError, highest_k, member_scores, pass_at_k_metrics, subset_metrics
from gymq.score_totals import pass_at_k

from . import oracle

SCORE = st.one_of(st.sampled_from([0.0, 1.0]), st.sampled_from([0, 1, True, False, 0.5, -1.5, 0.1]))
RESULT = st.fixed_dictionaries(
    {}, optional={"s": SCORE, "t": st.sampled_from([0, 1]), "ans": st.sampled_from(["a", "b", 1, None])}
)
TASKS = st.lists(st.lists(RESULT, max_size=6), min_size=1, max_size=6)


@given(TASKS)
def test_all_metrics_are_those_of_the_definitions(tasks: list[list[dict[str, Any]]]) -> None:
    found = pass_at_k_metrics(tasks, scores=member_scores(["s", "t"]), answer_key="ans", sample_std_dev=True)
    expected = oracle.metrics(tasks, ["s", "t"])
    runs, expected_runs = found.metrics.pop("per_sample_aggregate"), expected.pop("per_sample_aggregate")
    assert runs.keys() == expected_runs.keys()
    for name in runs:
        assert runs[name] == pytest.approx(expected_runs[name], rel=1e-9, abs=1e-9)
    assert found.metrics == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.max_k == max(len(task) for task in tasks)


VOTE = st.fixed_dictionaries({"s": st.sampled_from([0, 1]), "ans": st.sampled_from(["a", "b", None])})


@given(st.lists(st.lists(VOTE, min_size=3, max_size=9), min_size=1, max_size=3))
def test_a_majority_is_counted_anew_for_every_k(tasks: list[list[dict[str, Any]]]) -> None:
    metrics = pass_at_k_metrics(tasks, scores=member_scores(["s"]), answer_key="ans").metrics
    for k in range(1, max(len(task) for task in tasks) + 1):
        assert metrics[f"majority@{k}/s"] == pytest.approx(oracle.majority_at_k(tasks, "s", k))


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_is_one_minus_the_chance_to_draw_only_wrong_samples(counts: tuple[int, int]) -> None:
    samples, correct = counts
    for k, estimate in enumerate(pass_at_k(samples, correct), 1):
        exact = 1 - math.comb(samples - correct, k) / math.comb(samples, k)
        assert estimate == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_pass_at_k_of_many_samples_stays_accurate() -> None:
    estimates = pass_at_k(10_000, 1)
    assert estimates[0] == pytest.approx(1 / 10_000, rel=1e-9)
    assert estimates[99] == pytest.approx(100 / 10_000, rel=1e-9)
    assert estimates[-1] == 1.0


def test_tasks_may_have_different_numbers_of_rollouts() -> None:
    tasks = [[{"reward": 1}], [{"reward": 0}, {"reward": 0}, {"reward": 1}]]
    metrics = pass_at_k_metrics(tasks).metrics
    assert metrics["pass@2/accuracy"] == pytest.approx(200 / 3)
    assert metrics["pass@1[avg-of-3]/accuracy"] == pytest.approx(200 / 3)
    assert metrics["per_sample_aggregate"]["accuracy"] == [50.0, 0.0, 100.0]


def test_no_tasks_have_no_metrics_and_empty_tasks_have_no_runs() -> None:
    assert pass_at_k_metrics([]) == ({}, [], 0, {})
    assert pass_at_k_metrics([[]]) == ({"per_sample_aggregate": {}}, [], 0, {})


def test_a_score_that_is_null_counts_as_missing() -> None:
    metrics = pass_at_k_metrics([[{"s": None}, {"s": 1}]], scores=member_scores(["s"])).metrics
    assert metrics["per_sample_aggregate"] == {"s": [100.0]}


@pytest.mark.parametrize("reward", [None, "1", [1], math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(reward: Any) -> None:
    with pytest.raises(MetricError, match="task 1, rollout 0: the score `accuracy`"):
        pass_at_k_metrics([[{"reward": 1}], [{"reward": reward}]])


def test_a_missing_reward_is_refused() -> None:
    with pytest.raises(MetricError, match="the score `accuracy` is None"):
        pass_at_k_metrics([[{}]])


def test_an_answer_that_cannot_be_counted_is_refused() -> None:
    with pytest.raises(MetricError, match="task 0, rollout 1: the answer `ans`"):
        pass_at_k_metrics([[{"reward": 1}, {"reward": 1, "ans": ["a"]}]], answer_key="ans")


def test_subsets_go_by_the_first_rollout_and_leave_out_tasks_without_value() -> None:
    tasks = [
        [{"reward": 1, "level": "easy"}, {"reward": 0, "level": "hard"}],
        [{"reward": 0, "level": "easy"}],
        [{"reward": 1, "level": 3}],
        [{"reward": 1, "level": ""}],
        [{"reward": 1}],
        [],
    ]
    metrics = subset_metrics(tasks, "level")
    assert metrics["easy/pass@1/accuracy"] == pytest.approx(25.0)
    assert metrics["3/pass@1/accuracy"] == 100.0
    assert {name.split("/")[0] for name in metrics} == {"easy", "3"}
    assert not [name for name in metrics if "per_sample_aggregate" in name]


def test_the_headline_is_the_largest_k_without_deviations() -> None:
    metrics = pass_at_k_metrics(
        [[{"reward": 1, "ans": "a"}, {"reward": 0}, {"reward": 0}] for _ in range(2)],
        answer_key="ans",
        sample_std_dev=True,
    ).metrics
    assert highest_k(metrics, "pass@{k}").keys() == {"pass@3/accuracy", "pass@3/no_answer"}
    assert highest_k(metrics, "pass@1[avg-of-{k}]", exclude_names=["no_answer"]).keys() == {"pass@1[avg-of-3]/accuracy"}
    assert highest_k(metrics, "majority@{k}", score_names=["no_answer"]).keys() == {"majority@3/no_answer"}
    assert highest_k(metrics, "other@{k}") == {}


@pytest.mark.parametrize("pattern", ["pass@1", "{k}{k}"])
def test_a_pattern_without_its_k_is_refused(pattern: str) -> None:
    with pytest.raises(MetricError, match="exactly once"):
        highest_k({"pass@1/accuracy": 1.0}, pattern)


def test_two_digit_ks_are_larger_than_one_digit_ks() -> None:
    assert highest_k({"pass@9/s": 1.0, "pass@10/s": 2.0}, "pass@{k}") == {"pass@10/s": 2.0}


def test_an_interval_is_that_of_students_t_over_tasks() -> None:
    rewards = [[10.0, 10.0], [10.0, 0.0], [0.0, 0.0]]
    interval = pass_at_k_metrics([[{"reward": reward} for reward in task] for task in rewards]).intervals
    best_of_two = [1000.0, 1000.0, 0.0]
    reach = 4.302653 * statistics.stdev(best_of_two) / math.sqrt(3)
    assert interval["pass@2/accuracy"].low == pytest.approx(statistics.fmean(best_of_two) - reach, rel=1e-6)
    assert interval["pass@2/accuracy"].high == pytest.approx(statistics.fmean(best_of_two) + reach, rel=1e-6)


def test_an_interval_of_scores_between_0_and_1_stays_between_0_and_100() -> None:
    interval = pass_at_k_metrics([[{"reward": 1}], [{"reward": 0}], [{"reward": 0.5}]]).intervals["pass@1/accuracy"]
    assert (interval.low, interval.high) == (0.0, 100.0)


def test_there_is_no_interval_for_a_single_task_or_where_all_agree() -> None:
    assert pass_at_k_metrics([[{"reward": 1}, {"reward": 0}]]).intervals == {}
    assert pass_at_k_metrics([[{"reward": 1}]] * 5).intervals == {}


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    chance, covered, runs = 0.4, 0, 400
    generator = random.Random(7)
    for _ in range(runs):
        tasks = [[{"reward": float(generator.random() < chance)} for _ in range(4)] for _ in range(12)]
        interval = pass_at_k_metrics(tasks).intervals["pass@1/accuracy"]
        covered += interval.low <= 100 * chance <= interval.high
    assert 0.90 < covered / runs < 0.99
