import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.stats.intervals import Estimate
from gymq.stats.pass_at_k import PassTotals, majority_passes, pass_probabilities

from . import oracle

ROLLOUT = st.tuples(st.sampled_from([0.0, 1.0, 0.5, -1.5, 0.1, 2.0]), st.sampled_from(["a", "b", None]))
TASKS = st.lists(st.lists(ROLLOUT, min_size=1, max_size=6), min_size=1, max_size=6)


def at(totals: PassTotals, k: int) -> Estimate:
    found = totals.percent_at(k)
    assert found is not None
    return found


@given(TASKS)
def test_all_rates_are_those_of_the_definitions(tasks: list[oracle.Task]) -> None:
    totals, halves = PassTotals(), (PassTotals(), PassTotals())
    for number, task in enumerate(tasks):
        totals.add([reward >= 1 for reward, _ in task])
        halves[number % 2].add([reward >= 1 for reward, _ in task])
    halves[0].merge(halves[1])
    assert halves[0] == totals
    assert totals.max_k == max(len(task) for task in tasks)
    for k in range(1, totals.max_k + 1):
        found = at(totals, k)
        assert found.value == pytest.approx(oracle.pass_at_k(tasks, k), rel=1e-9, abs=1e-9)
        assert found.tasks == sum(len(task) >= k for task in tasks)
    assert totals.percent_at(totals.max_k + 1) is None


@given(TASKS)
def test_a_majority_never_beats_the_best_of_the_same_rollouts(tasks: list[oracle.Task]) -> None:
    for task in tasks:
        passed = [reward >= 1 for reward, _ in task]
        found = majority_passes([answer for _, answer in task], passed)
        assert 100 * found == pytest.approx(oracle.majority([task]))
        assert found <= any(passed)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_is_one_minus_the_chance_to_draw_only_wrong_samples(counts: tuple[int, int]) -> None:
    samples, correct = counts
    for k, estimate in enumerate(pass_probabilities(samples, correct), 1):
        exact = 1 - math.comb(samples - correct, k) / math.comb(samples, k)
        assert estimate == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_pass_at_k_of_many_samples_stays_accurate() -> None:
    estimates = pass_probabilities(10_000, 1)
    assert estimates[0] == pytest.approx(1 / 10_000, rel=1e-9)
    assert estimates[99] == pytest.approx(100 / 10_000, rel=1e-9)
    assert estimates[-1] == 1.0


def test_an_interval_is_that_of_students_t_over_tasks() -> None:
    totals = PassTotals()
    tasks = [[True, True, False], [True, False, False], [False, False, False]]
    for task in tasks:
        totals.add(task)
    rates = [100.0, 200 / 3, 0.0]
    reach = 4.302653 * statistics.stdev(rates) / math.sqrt(3)
    interval = at(totals, 2).interval
    assert interval is not None
    assert interval.low == max(0.0, statistics.fmean(rates) - reach)
    assert interval.high == min(100.0, statistics.fmean(rates) + reach)
    for _ in range(5):
        for task in tasks:
            totals.add(task)
    reach = 2.109816 * statistics.stdev(rates * 6) / math.sqrt(18)
    interval = at(totals, 2).interval
    assert interval is not None
    assert interval.low == pytest.approx(statistics.fmean(rates) - reach, rel=1e-6)
    assert interval.high == pytest.approx(statistics.fmean(rates) + reach, rel=1e-6)


@pytest.mark.parametrize("tasks", [[[True, False]], [[True]] * 5])
def test_there_is_no_interval_for_a_single_task_or_where_all_agree(tasks: list[list[bool]]) -> None:
    totals = PassTotals()
    for task in tasks:
        totals.add(task)
    assert at(totals, 1).interval is None


def test_pass_at_1_is_rounded_as_the_mean_of_the_same_rewards() -> None:
    totals = PassTotals()
    for num_passed in [1] * 8 + [2] * 5 + [3] * 2 + [4]:
        totals.add([True] * num_passed + [False] * (4 - num_passed))
    assert at(totals, 1).value == 100 * 28 / 64


def test_intervals_hold_the_true_value_about_as_often_as_they_say() -> None:
    chance, covered, runs = 0.4, 0, 400
    generator = random.Random(7)
    for _ in range(runs):
        totals = PassTotals()
        for _ in range(12):
            totals.add([generator.random() < chance for _ in range(4)])
        interval = at(totals, 1).interval
        covered += interval is not None and interval.low <= 100 * chance <= interval.high
    assert 0.90 < covered / runs < 0.99
