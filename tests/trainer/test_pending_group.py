"""What a group that is not complete yet still needs."""

from typing import Any

from gymq.protocol.messages import Failure, FailureClass, Stage, VerifiedRollout
from gymq.testing import prompt, reply
from gymq.trainer.examples import rows_of_groups
from gymq.trainer.options import RolloutOptions
from gymq.trainer.pending_group import PendingGroup


def test_a_group_is_refilled_once() -> None:
    example = {**prompt("say done"), "_ng_task_index": 0}
    (rows,) = rows_of_groups([example], 2, "agent")
    options = RolloutOptions(num_samples=2, on_untrainable="allow", on_failed_group="refill")
    pending = PendingGroup(example, rows, options)

    def common(index: int) -> dict[str, Any]:
        row = pending.rows[index].json
        return {"run": "run", "task_index": 0, "rollout_index": index, "num_rollouts": 2, "agent": "agent", "row": row}

    def failed(index: int) -> Failure:
        return Failure(
            **common(index),
            failure_class=FailureClass.AGENT_FAILED,
            stage=Stage.AGENT,
            message="no",
            retryable=False,
        )

    sample = VerifiedRollout(**common(0), response=reply("done"), reward=1.0, verdict={})
    pending.learn([(1, sample), (2, failed(1))])
    assert (pending.refill(), len(pending.rows)) == (True, 3)
    pending.learn([(3, failed(2))])
    assert (pending.refill(), len(pending.rows), pending.is_complete) == (False, 3, True)
