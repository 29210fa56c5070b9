import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.data.rows import RowError
from tests.support.reports import report


def row(task: int, rollout: int, agent: str = "a", **members: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": agent}, **members}


def result(task: int, rollout: int, **members: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "response": {}, **members}


def one_task(*results: dict[str, Any]) -> dict[str, Any]:
    rows = [row(0, index) for index in range(len(results))]
    return report(rows, [result(0, index, **members) for index, members in enumerate(results)]).groups[0]


REWARDS = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), min_size=1, max_size=5)


@given(REWARDS, st.randoms(use_true_random=False))
def test_statistics_are_those_of_the_library_in_whatever_order_results_come(rewards: list[list[float]], random) -> None:
    keys = [(task, rollout) for task, values in enumerate(rewards) for rollout in range(len(values))]
    results = [result(t, r, reward=rewards[t][r]) for t, r in keys]
    found = report(
        random.sample([row(t, r, agent=f"agent{t % 2}") for t, r in keys], len(keys)),
        random.sample(results, len(keys)),
    )
    assert [group["_ng_task_index"] for group in found.groups] == list(range(len(rewards)))
    for task, group in enumerate(found.groups):
        check(group, rewards[task])
    assert [agent["agent_ref"]["name"] for agent in found.agents] == ["agent0", "agent1"][: len(rewards)]
    for number, agent in enumerate(found.agents):
        check(agent, [value for values in rewards[number::2] for value in values])


def check(entry: dict[str, Any], values: list[float]) -> None:
    assert entry["mean/reward"] == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-9)
    assert (entry["max/reward"], entry["min/reward"]) == (max(values), min(values))
    assert entry["median/reward"] == statistics.median(values)
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    assert entry["std/reward"] == pytest.approx(std, rel=1e-9, abs=1e-9)


def test_usage_replaces_fields_of_the_result_even_by_something_that_is_no_number() -> None:
    usage = {"input_tokens": 7, "output_tokens": None, "details": {"cached": 1}, "cached": True}
    group = one_task({"reward": 1, "input_tokens": 1, "output_tokens": 2, "response": {"usage": usage}})
    assert {name: value for name, value in group.items() if name.startswith("mean/")} == {
        "mean/reward": 1.0,
        "mean/input_tokens": 7.0,
        "mean/cached": 1.0,
    }


def test_rollout_infos_have_the_fields_of_the_result_over_those_of_its_usage() -> None:
    usage = {"input_tokens": 7, "total_tokens": 9}
    members = {"reward": True, "input_tokens": 1, "solved": False, "text": "x", "none": None}
    group = one_task({**members, "response": {"usage": usage}})
    assert group["rollout_infos"] == [
        {
            "rollout_id": "0:0",
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "reward": True,
            "input_tokens": 1,
            "total_tokens": 9,
            "solved": 0,
        }
    ]


def test_a_field_of_one_rollout_among_several_has_no_deviation() -> None:
    group = one_task({"reward": 1, "score": 3.0}, {"reward": 0})
    assert group["mean/score"] == 3.0
    assert "std/score" not in group
    assert "std/reward" in group


def test_a_field_that_no_rollout_of_a_task_has_has_no_entries() -> None:
    rows, results = [row(0, 0), row(1, 0)], [result(0, 0, reward=1, score=2), result(1, 0, reward=1)]
    assert [name for name in report(rows, results).groups[1] if name.endswith("/score")] == []


def test_not_a_number_counts_as_missing() -> None:
    group = one_task({"reward": 1.0, "score": float("nan")}, {"reward": 0.0, "score": 2.0})
    assert group["mean/score"] == 2.0


def test_the_sample_is_the_first_row_that_has_a_result_without_its_indices() -> None:
    rows = [row(0, 1, seed=1), row(0, 0, seed=0), row(0, 2, seed=2)]
    found = report(rows, [result(0, 2, reward=1), result(0, 1, reward=1)], allow_partial=True)
    assert found.groups[0]["sample"] == {"agent_ref": {"name": "a"}, "seed": 1}


def test_a_partial_profile_counts_what_is_missing_and_drops_tasks_without_results() -> None:
    rows = [row(task, rollout, agent=f"a{task}") for task in range(3) for rollout in range(4)]
    results = [result(0, 1, reward=1), result(2, 0, reward=0), result(2, 3, reward=1), result(2, 2, reward=1)]
    found = report(rows, results, allow_partial=True)
    counts = ("_ng_task_index", "num_rollouts", "expected_num_rollouts", "missing_num_rollouts")
    assert [[group[name] for name in counts] for group in found.groups] == [[0, 1, 4, 3], [2, 3, 4, 1]]
    assert [group["reward_profile_completion_pct"] for group in found.groups] == [25.0, 75.0]
    assert [info["rollout_id"] for info in found.groups[1]["rollout_infos"]] == ["2:0", "2:2", "2:3"]
    assert [agent["agent_ref"]["name"] for agent in found.agents] == ["a0", "a2"]


def test_nothing_has_an_empty_report() -> None:
    assert report([], []) == ([], [])
    assert report([row(0, 0)], [], allow_partial=True) == ([], [])


@pytest.mark.parametrize(
    ("rows", "results", "reason"),
    [
        ([row(0, 0), row(0, 0)], [result(0, 0)], r"more than one row of rollout \(0, 0\)"),
        ([row(0, 0)], [result(0, 0), result(0, 0)], r"more than one result of rollout \(0, 0\)"),
        ([row(0, 0), row(0, 1)], [result(0, 1)], r"1 of 2 materialised rows have no result: rollouts \(0, 0\)"),
        ([row(1, 0)], [result(0, 0), result(1, 0)], r"1 results belong to no .*: rollouts \(0, 0\)"),
        ([row(1, 0)], [result(1, 0), result(1, 7)], r"belong to no materialised row: rollouts \(1, 7\)"),
        ([row(1, 0)], [result(1, 0), result(2, 0)], r"belong to no materialised row: rollouts \(2, 0\)"),
        ([row(0, 0)], [{"_ng_task_index": 0, "_ng_rollout_index": 0}], "has no `response` object"),
        ([row(0, 0)], [result(0, 0, response=None)], "has no `response` object"),
        ([row(0, 0)], [result(0, 0, response={"usage": 5})], "a `usage` object or none"),
        ([row(0, 0)], [{"_ng_task_index": 0, "response": {}}], "`_ng_rollout_index` of a row or result"),
        ([row(0, 0)], [result("0", 0)], "`_ng_task_index` of a row or result"),  # type: ignore[arg-type]
        ([row(0, True)], [result(0, 0)], "`_ng_rollout_index` of a row or result"),
        ([row(0, 0)], [result(0, 0, reward=1e300)], r"the result of rollout \(0, 0\): `reward` is 1e\+300"),
        ([row(0, 0)], [result(0, 0, reward=0, _ng_failure_class="judge_failed")], r"a failure \(judge_failed\)"),
    ],
)
def test_rows_and_results_that_do_not_fit_are_refused(rows: Any, results: Any, reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        report(rows, results)


def test_results_without_row_are_refused_in_a_partial_profile_too() -> None:
    with pytest.raises(RowError, match="belong to no materialised row"):
        report([row(0, 0)], [result(3, 0)], allow_partial=True)


def test_only_the_first_missing_rollouts_are_named() -> None:
    with pytest.raises(RowError, match=r"50 of 50 .* \(0, 9\), …; allow a partial profile"):
        report([row(0, rollout) for rollout in range(50)], [])
