"""Messages about a row of a data set name its file, its line and its prompt, whichever trainer asked for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymq.data.jsonl import JsonlError
from gymq.data.rows import RowError
from gymq.errors import UsageError
from gymq.trainer import TrainingRun, read_rows
from gymq.trainer.examples import place_of
from tests.support.world import World

FAILS: dict[str, Any] = {"verdict": {"fails": {"class": "invalid_task"}}}


@pytest.fixture
def rows(world: World, tmp_path: Path) -> list[dict[str, Any]]:
    """Two rows of a file; the second always fails."""
    file = tmp_path / "rows.jsonl"
    made = [world.row("say one"), world.row("say never", **FAILS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in made))
    return read_rows(file)


async def test_a_group_that_failed_names_its_row(
    training: TrainingRun, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    place = f"{tmp_path}/rows.jsonl:2, 'say never'"
    assert place_of(rows[1]) == place
    numbered = [{**row, "_ng_task_index": at} for at, row in enumerate(rows)]
    with pytest.raises(UsageError) as raised:
        [group async for group in training.run_rollouts(numbered, on_failed_group="raise")]
    assert str(raised.value) == f"task 1 ({place}) has 0 of 1 samples: as the row asks"


async def test_a_row_of_a_file_that_moved_is_still_the_same(
    training: TrainingRun, rows: list[dict[str, Any]], world: World
) -> None:
    for source in ("rows.jsonl:1", "moved/rows.jsonl:1"):
        example = {**rows[0], "_ng_task_index": 0, "_ng_source": source}
        (group,) = [group async for group in training.run_rollouts([example])]
        assert group.is_complete
    assert len(world.engine.requests) == 1


def test_rows_that_cannot_be_used_are_named_before_anything_is_asked_for(
    training: TrainingRun, rows: list[dict[str, Any]]
) -> None:
    del rows[1]["agent_ref"]
    with pytest.raises(RowError, match=r"^examples:2 \(.*rows\.jsonl:2, 'say never'\): the row names no agent"):
        training.run_rollouts([{**row, "_ng_task_index": at} for at, row in enumerate(rows)])


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "?"}\n[]\n')
    with pytest.raises(JsonlError, match=r"rows\.jsonl:2: "):
        read_rows(file)
