"""Each trainer's messages about a row of a data set name its file, its line and its prompt."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.trainers.art import trajectory_group
from gymq.ext.trainers.nemo_rl import NemoGym
from gymq.ext.trainers.nemo_rl.logs import failure
from gymq.ext.trainers.skyrl import GymqGenerator
from gymq.ext.trainers.trl import TRLRollouts
from gymq.trainer import TrainingRun
from gymq.trainer.examples import called, place_of
from tests.trainer.test_examples import rows as rows


async def test_a_group_that_failed_names_its_row(training: TrainingRun, rows: list[dict[str, Any]]) -> None:
    place = place_of(rows[1])
    (group,) = [group async for group in training.run_rollouts([{**rows[1], "_ng_task_index": 1}])]
    assert trajectory_group(group, "policy")["exceptions"][0]["message"] == f"the row ({place}): as the row asks"
    assert f"row 7 ({place}): as the row asks" in str(failure(called("row 7", group.example), group.failures[0]))


async def test_a_generator_of_skyrl_names_the_rows_of_its_batch(
    training: TrainingRun, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"prompts": [[]], "env_extras": [{"row": json.dumps(rows[1])}]}
    with pytest.raises(UsageError, match=r"rows\.jsonl:2, 'say never'\) has 0 of 1 samples"):
        await GymqGenerator(training).generate(asked)
    del rows[1]["responses_create_params"]
    asked["env_extras"] = [{"row": json.dumps(rows[1])}]
    with pytest.raises(UsageError, match=r"^env_extras\[0\] \(.*rows\.jsonl:2\): .*the row has no prompt"):
        await GymqGenerator(training).generate(asked)


async def test_nemo_rl_is_told_which_row_has_no_agent(rows: list[dict[str, Any]]) -> None:
    actor = NemoGym({"model_name": "m", "base_urls": []})
    row = {**rows[0], "agent_ref": None, "task_source": "nobody", "_rowidx": 3}
    with pytest.raises(UsageError, match=r"^row 3 \(.*rows\.jsonl:1, 'say one'\): `task_source` 'nobody'"):
        actor._agent_of(row)


def test_rows_with_the_same_prompt_are_named(rows: list[dict[str, Any]]) -> None:
    rows[1]["_ng_source"] = "other.jsonl:5"
    rows[1]["responses_create_params"] = rows[0]["responses_create_params"]
    with pytest.raises(UsageError, match=r"^a row \(.*rows\.jsonl:1, 'say one'\) and another \(other\.jsonl:5, 'say"):
        TRLRollouts(None, rows)  # type: ignore[arg-type]
