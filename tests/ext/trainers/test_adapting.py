"""What adapters do by themselves."""

from gymq.ext.trainers.adapting import Steps
from tests.trainer.test_announced import Pool
from tests.trainer.test_announced import pool as pool


async def test_an_adapter_announces_no_steps_where_engines_name_their_weights(pool: Pool) -> None:
    steps = Steps({"max_staleness": 1})
    await steps.begin(pool.training, 5)
    assert pool.training.policy_version is None
