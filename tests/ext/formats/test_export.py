"""Stored runs as files that other programs read."""

import errno
import json
import os
from array import array
from pathlib import Path
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.formats import table
from gymq.ext.formats.command import export
from gymq.ext.formats.exporting import export_file, export_trajectories
from gymq.ext.rollout_files.run_export import RunExport
from gymq.stats.files import read_statistics
from gymq.testing import function_call, reply
from tests.support.stored import Stored, failure, place, rollout, world

parquet = pytest.importorskip("pyarrow.parquet", reason='pip install "gymq[datasets]"')

__all__ = ["place", "world"]


async def stored(place: Stored, run: str) -> None:
    response = reply(function_call("spell", {"word": "abc"}), "Bern") | {"usage": {"output_tokens": 2}}
    response["output"][1] |= {
        "prompt_token_ids": array("i", [1, 2, 3]),
        "generation_token_ids": array("i", [2**31 - 1, 5]),
        "generation_log_probs": array("d", [-0.1, -1e-300]),
    }
    await place.store(rollout(run, 0, response=response, verdict={"extracted_answer": "Bern"}), failure(run, 1))
    broken = failure(run, 2)
    broken.row = b"\xff no row"
    await place.store(broken)


async def test_parquet_has_every_outcome_with_its_exact_tokens(place: Stored, run: str, tmp_path: Path) -> None:
    await stored(place, run)
    assert await export_file(run, tmp_path / "run.parquet", place.world.url, "full") == 0
    done, failed, broken = parquet.read_table(tmp_path / "run.parquet").to_pylist()
    assert (done["run"], done["task_index"], done["reward"], done["failure_class"]) == (run, 0, 1.0, None)
    assert done["generation_token_ids"] == [[2**31 - 1, 5]]
    assert done["generation_log_probs"] == [[-0.1, -1e-300]]
    assert done["prompt_token_ids"] == [[1, 2, 3]]
    assert [item["type"] for item in json.loads(done["output"])] == ["function_call", "message"]
    assert "token_ids" not in done["output"]
    assert json.loads(done["row"]) == {"answer": "Bern"}
    assert json.loads(done["params"]) == {"input": "question 0"}
    assert json.loads(done["verdict"]) == {"extracted_answer": "Bern"}
    assert (failed["reward"], failed["failure_class"], failed["message"]) == (None, "model_failed", "no GPU")
    assert (broken["row"], broken["params"]) == ("\\xff no row", None)


def test_rollouts_with_many_tokens_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "TOKENS_AT_ONCE", 6)
    response = reply("Bern")
    response["output"][0] |= {"prompt_token_ids": array("i", [1, 2, 3]), "generation_token_ids": array("i", [5])}
    with table.RunTableFile(tmp_path / "run.parquet") as file:
        for task in range(5):
            file.add(rollout("r", task, response=response))
    read = parquet.ParquetFile(tmp_path / "run.parquet")
    assert [read.metadata.row_group(part).num_rows for part in range(read.num_row_groups)] == [2, 2, 1]


def test_a_rollout_that_replaces_a_failure_while_they_are_read_has_one_row(tmp_path: Path) -> None:
    with table.RunTableFile(tmp_path / "run.parquet") as file:
        for outcome in (failure("r", 0), rollout("r", 1), rollout("r", 0)):
            file.add(outcome)
    assert parquet.read_table(tmp_path / "run.parquet")["task_index"].to_pylist() == [0, 1]


async def test_hugging_face_datasets_reads_it(place: Stored, run: str, tmp_path: Path, monkeypatch: Any) -> None:
    datasets = pytest.importorskip("datasets")
    await stored(place, run)
    await export_file(run, tmp_path / "run.parquet", place.world.url, "full")
    read = datasets.Dataset.from_parquet(str(tmp_path / "run.parquet"), cache_dir=str(tmp_path / "cache"))
    assert read["task_index"][:] == [0, 1, 2]


async def test_jsonl_is_what_a_collection_writes(place: Stored, run: str, tmp_path: Path) -> None:
    await stored(place, run)
    await export_file(run, tmp_path / "run.jsonl", place.world.url, "full")
    (line,) = (tmp_path / "run.jsonl").read_text().splitlines()
    assert json.loads(line)["reward"] == 1.0
    rows = [json.loads(row) for row in (tmp_path / "run_materialized_inputs.jsonl").read_text().splitlines()]
    assert [row["_ng_task_index"] for row in rows] == [0, 1, 2]
    # What is not a row has no field that a task needs.
    assert [set(row) - {"_ng_task_index", "_ng_rollout_index", "agent_ref"} for row in rows][2] == set()


def test_the_files_name_the_agent_that_ran_a_row(tmp_path: Path) -> None:
    other, deep = rollout("r", 0, row={"agent_ref": {"name": "other"}}), rollout("r", 1)
    deep.row = b'{"a":' * 2000 + b"1" + b"}" * 2000
    with RunExport(tmp_path / "run.jsonl") as file:
        file.add(other)
        file.add(deep)
    for name in ("run.jsonl", "run_materialized_inputs.jsonl"):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert [line["agent_ref"]["name"] for line in lines] == ["asker", "asker"]


def test_a_failure_that_is_replaced_meanwhile_has_one_row(tmp_path: Path) -> None:
    with RunExport(tmp_path / "run.jsonl") as file:
        for outcome in (failure("r", 0), failure("r", 1), rollout("r", 0)):
            file.add(outcome)
    found = read_statistics(file.files).profile.snapshot().agents["asker"]
    assert (found.rollouts, len(list(file.files.rows()))) == (1, 2)


@pytest.mark.parametrize("form", ["jsonl", "atif"])
async def test_an_export_that_ends_early_leaves_nothing(
    place: Stored, run: str, tmp_path: Path, monkeypatch: Any, form: str
) -> None:
    await stored(place, run)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        f"gymq.{'ext.rollout_files.run_export.output_row' if form == 'jsonl' else 'ext.formats.atif.write_atif'}", fail
    )
    file = tmp_path / "run.jsonl"
    exporting = (
        export_file(run, file, place.world.url, "full")
        if form == "jsonl"
        else export_trajectories(run, file, place.world.url, "atif")
    )
    with pytest.raises(UsageError, match=r"\.jsonl cannot be written: No space left"):
        await exporting
    assert os.listdir(tmp_path) == []


def test_rows_of_another_export_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "run_materialized_inputs.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"run_materialized_inputs\.jsonl already exists: choose another --output"):
        export(run="r", output=tmp_path / "run.jsonl")


async def test_a_table_that_is_not_finished_is_not_there(
    place: Stored, run: str, tmp_path: Path, monkeypatch: Any
) -> None:
    await stored(place, run)

    def fail(outcome: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(table, "_row", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        await export_file(run, tmp_path / "run.parquet", place.world.url, "full")
    assert os.listdir(tmp_path) == []


async def test_a_run_that_is_not_stored_is_refused(place: Stored, run: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"run '{run}' not found"):
        await export_file(run, tmp_path / "run.parquet", place.world.url, "full")


@pytest.mark.parametrize("name", ["run.csv", "there.jsonl"])
def test_a_name_that_does_not_do_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "there.jsonl").touch()
    with pytest.raises(UsageError, match=name):
        export(run="r", output=tmp_path / name)
