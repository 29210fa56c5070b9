"""Outcomes that are added to a profile as they are stored."""

from typing import Any

import pytest

from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import RunningProfile
from tests.support.stored import failure, rollout


@pytest.mark.parametrize(
    ("members", "is_final"),
    [
        ({"retryable": False, "curable": False}, True),
        ({"retryable": True, "curable": False}, False),
        ({"retryable": False, "curable": True}, False),
    ],
)
def test_a_task_waits_for_rollouts_that_another_attempt_may_cure(members: dict[str, Any], is_final: bool) -> None:
    profile = RunningProfile()
    add_outcome(profile, 1, failure("r", 0, num_rollouts=1, **members))
    assert profile.is_complete(0) == is_final
    add_outcome(profile, 2, rollout("r", 0, num_rollouts=1))
    assert profile.snapshot().agents["asker"].rollouts == (not is_final)
