"""Messages about the replicas of a model."""

from typing import Any

import pytest

from gymq.protocol.replica_messages import Weights


@pytest.mark.parametrize(
    ("in_flight", "restarted", "finished"), [("continue", None, None), ("restart", "3", None), ("finish", None, "3")]
)
def test_weights_note_whether_rollouts_restart_or_finish(in_flight: Any, restarted: Any, finished: Any) -> None:
    weights = Weights(policy_version="3", in_flight=in_flight)
    assert (weights.restarted, weights.finished) == (restarted, finished)
