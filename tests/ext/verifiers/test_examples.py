"""An episode of a row that failed names its file, its line and its prompt."""

from typing import Any

from gymq.ext.verifiers.episodes import failed_episode
from gymq.trainer import TrainingRun
from gymq.trainer.examples import place_of
from tests.trainer.conftest import training as training
from tests.trainer.conftest import world as world
from tests.trainer.test_examples import rows as rows


async def test_a_group_that_failed_names_its_row(training: TrainingRun, rows: list[dict[str, Any]]) -> None:
    (group,) = [group async for group in training.run_rollouts([{**rows[1], "_ng_task_index": 1}])]
    assert failed_episode({}, group)["errors"][0]["message"] == f"the row ({place_of(rows[1])}): as the row asks"
