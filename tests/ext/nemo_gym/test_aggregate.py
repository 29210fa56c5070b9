from typing import Any

import pytest

from gymq.data.rows import RowError
from gymq.ext.nemo_gym.aggregate import aggregate


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


@pytest.mark.parametrize("broken", [{"reward": 1.0}, response(0, 0, reward=1.0), response(5, 5, response=None)])
def test_answers_without_indices_or_response_object_and_repeated_ones_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        aggregate([*RESPONSES, broken])
