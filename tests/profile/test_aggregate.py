from typing import Any

import pytest

from gymq.aggregate import aggregate
from gymq.passk import pass_at_k_metrics
from gymq.profile import ProfileError


def response(task: int, rollout: int, **members: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **members}


RESPONSES = [response(1, 0, reward=1.0), response(0, 1, reward=0.0), response(0, 0, reward=1.0)]


def test_an_answer_without_response_has_no_usage() -> None:
    found = aggregate([response(0, 0, reward=0.5)])
    assert found.agent_metrics["mean/reward"] == 0.5
    assert found.key_metrics == {"mean/reward": 0.5}
    assert found.group_level_metrics[0]["sample"] == {"agent_ref": {"name": "agent"}}


def test_nothing_has_no_metrics() -> None:
    assert aggregate([]) == ([], {}, {})


def test_a_worker_gets_its_answers_by_task_and_rollout_and_adds_its_own_metrics() -> None:
    def compute(tasks: list[list[Any]]) -> dict[str, Any]:
        assert [[r["reward"] for r in task] for task in tasks] == [[1.0, 0.0], [1.0]]
        return {**pass_at_k_metrics(tasks).metrics, "per_task_metrics": [{"_ng_task_index": 1, "hard": True}]}

    found = aggregate(RESPONSES, compute, lambda metrics: {"headline": metrics["pass@1/accuracy"]})
    assert found.agent_metrics["pass@1/accuracy"] == 75.0
    assert "per_task_metrics" not in found.agent_metrics
    assert found.key_metrics == {"headline": 75.0}
    assert [group.get("hard") for group in found.group_level_metrics] == [None, True]


@pytest.mark.parametrize("broken", [{"reward": 1.0}, response(0, 0, reward=1.0), response(5, 5, response=None)])
def test_answers_without_indices_or_response_object_and_repeated_ones_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        aggregate([*RESPONSES, broken])
