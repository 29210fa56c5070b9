"""Data sets in the forms that they are published in: the same rows, and sentences for what cannot be read."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.rows import RowError

pa = pytest.importorskip("pyarrow", reason='pyarrow is not installed: pip install "gymq[datasets]"')
from pyarrow import parquet  # type: ignore[import-untyped]  # noqa: E402

Rows = list[dict[str, Any]]


def row(number: int, **members: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": [{"role": "user", "content": f"{number}?"}]}, "n": number, **members}


ROWS = [row(number) for number in range(200)]


def read(path: Path) -> Rows:
    return [json.loads(line) for line in Dataset(path)]


def write_parquet(path: Path, rows: Rows, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(content) + "\n" for content in rows))
    return path


# The forms ------------------------------------------------------------------------------------------------------------


def test_a_parquet_file_is_read_in_order(tmp_path: Path) -> None:
    assert read(write_parquet(tmp_path / "train.parquet", ROWS, row_group_size=30)) == ROWS


def test_it_can_be_read_again_from_the_start(tmp_path: Path) -> None:
    dataset = Dataset(write_parquet(tmp_path / "train.parquet", ROWS))
    assert list(dataset) == list(dataset)


def test_a_data_set_saved_to_disk_is_read_as_it_was_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=3)
    assert len(Dataset(tmp_path / "saved").files) == 3
    assert read(tmp_path / "saved") == ROWS


def test_one_split_of_several_saved_to_disk_is_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    splits = {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS[:2])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    with pytest.raises(JsonlError, match=r"contains test, train: name one, as in .*saved/test"):
        Dataset(tmp_path / "saved")
    assert read(tmp_path / "saved" / "test") == ROWS[:2]


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_arrow_files_of_both_kinds_are_read(tmp_path: Path, kind: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(tmp_path / "data.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    assert read(tmp_path / "data.arrow") == ROWS


def test_the_files_of_a_split_follow_each_other(tmp_path: Path) -> None:
    for shard in (1, 0):
        write_parquet(tmp_path / "data" / f"train-0000{shard}-of-00002.parquet", ROWS[shard * 100 :][:100])
    assert read(tmp_path) == ROWS


def test_a_folder_with_several_splits_asks_for_one(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", ROWS)
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", ROWS[:3])
    with pytest.raises(JsonlError, match=r"contains test, train: name one"):
        Dataset(tmp_path)
    assert read(tmp_path / "test") == ROWS[:3]


def test_names_that_begin_alike_are_different_splits(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "my-train.jsonl", ROWS)
    write_jsonl(tmp_path / "my-test.jsonl", ROWS[:3])
    assert read(tmp_path / "my-test") == ROWS[:3]


def test_a_hidden_file_belongs_to_no_split(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    write_jsonl(tmp_path / ".draft.jsonl", ROWS[:3])
    assert read(tmp_path) == ROWS


def test_a_row_is_called_by_its_file_and_line_or_its_place_in_a_list(tmp_path: Path) -> None:
    for shard in (0, 1):
        write_jsonl(tmp_path / f"train-0000{shard}-of-00002.jsonl", ROWS[:2])
    dataset = Dataset(tmp_path)
    list(dataset)
    names = [dataset.place(number).removeprefix(f"{tmp_path}/") for number in (1, 2, 3)]
    assert names == [f"train-0000{shard}-of-00002.jsonl:{line}" for shard, line in ((0, 1), (0, 2), (1, 1))]
    assert Dataset(dataset.files[0], of_a_list=True).place(1) == "rows[0]"


def test_jsonl_lines_stay_as_they_are(tmp_path: Path) -> None:
    lines = [b'{"a": 1.10, "b": null}\n', b'{"a":123456789012345678901234567890}']
    (tmp_path / "rows.jsonl").write_bytes(b"".join(lines))
    assert list(Dataset(tmp_path / "rows.jsonl")) == lines
    assert list(Dataset(tmp_path)) == lines


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The first rows come before the file is read to its end, so an end that is broken does no harm to them."""
    path = write_parquet(tmp_path / "train.parquet", ROWS * 10, row_group_size=200, compression="none")
    groups = parquet.ParquetFile(path).metadata
    last = groups.row_group(groups.num_row_groups - 1).column(0)
    content = bytearray(path.read_bytes())
    start = min(offset for offset in (last.dictionary_page_offset, last.data_page_offset) if offset)
    content[start : start + 16] = b"\xff" * 16
    path.write_bytes(content)
    lines = iter(Dataset(path))
    assert json.loads(next(lines)) == ROWS[0]
    with pytest.raises(JsonlError, match=r"train\.parquet: cannot be read after row 1(7[0-9][0-9]|800)"):
        list(lines)


def test_a_value_that_a_file_has_once_is_not_held_for_many_rows(tmp_path: Path) -> None:
    size = 4 << 20
    table = pa.table({"question": pa.array(["a" * size] * 64)})
    parquet.write_table(table, tmp_path / "x.parquet", compression="zstd", dictionary_pagesize_limit=2 * size)
    del table
    before = pa.total_allocated_bytes()
    lines = iter(Dataset(tmp_path / "x.parquet"))
    next(lines)
    assert pa.total_allocated_bytes() - before < 16 * size


# Values ---------------------------------------------------------------------------------------------------------------


def test_objects_may_be_columns_of_json_text(tmp_path: Path) -> None:
    rows = [{**row(1), "agent_ref": {"name": "a"}, "other": "{}"}]
    written = [{name: json.dumps(value) if isinstance(value, dict) else value for name, value in rows[0].items()}]
    assert read(write_parquet(tmp_path / "x.parquet", written)) == rows


def test_an_object_has_no_fields_of_other_rows(tmp_path: Path) -> None:
    """A column of objects has the members of all of them; in a row that lacks one it is null."""
    tools = [{"name": "a", "x": {"type": "integer"}}, {"name": "b", "y": {"enum": ["1", None]}}]
    rows = [row(0, tools=[tools[0]]), row(1, tools=[tools[1]]), row(2, extra=None)]
    assert read(write_parquet(tmp_path / "x.parquet", rows)) == [rows[0], rows[1], row(2)]


def test_values_get_their_json_form(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = [{"at": at, "exact": Decimal("1.10"), "big": 2**63 - 1, "list": [1.5, float("nan")], "nan": float("nan")}]
    expected = {"at": "2026-01-02T03:04:05Z", "exact": "1.10", "big": 2**63 - 1, "list": [1.5, None]}
    assert read(write_parquet(tmp_path / "x.parquet", rows)) == [expected]


def test_maps_are_objects(tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))})
    parquet.write_table(table, tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == [{"m": {"a": 1, "b": 2}}]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"image": {"bytes": b"\x89PNG"}}, r"row 2: column image\.bytes: contains bytes"),
        ({"far": float("inf")}, r"row 2: column far: contains an infinite number"),
        (
            {"responses_create_params": "{"},
            r"row 2: column responses_create_params: expected an object or the JSON text",
        ),
        ({"responses_create_params": "[]"}, r"row 2: column responses_create_params: expected an object"),
    ],
)
def test_a_value_without_json_form_is_told_with_its_file_row_and_column(
    tmp_path: Path, value: dict[str, Any], problem: str
) -> None:
    good = {name: "{}" if name == "responses_create_params" else None for name in value}
    path = write_parquet(tmp_path / "x.parquet", [good, value])
    with pytest.raises(JsonlError, match=rf"x\.parquet: {problem}"):
        read(path)


# What cannot be read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a table", b"ARROW1\0\0", b"\xff" * 64])
def test_a_file_that_is_no_table_is_told_by_name(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    with pytest.raises(JsonlError, match=rf"x\.{ending}: cannot be read after row 0"):
        read(path)


def test_a_shard_that_is_missing_is_told(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00001-of-00002.parquet", ROWS)
    with pytest.raises(JsonlError, match="contains 1 files of train, their names indicate 2"):
        Dataset(tmp_path)


def test_what_is_not_here_is_looked_for_among_the_shipped_files(tmp_path: Path, monkeypatch: Any) -> None:
    shipped = Path("workers/resources/mcqa/data/example.jsonl")
    monkeypatch.chdir(tmp_path)
    assert read(shipped) == read(Path(__file__).parents[2] / shipped)
    shipped.parent.mkdir(parents=True)
    write_jsonl(shipped, ROWS)
    assert read(shipped) == ROWS


def test_a_name_of_the_hub_without_its_prefix_is_told() -> None:
    with pytest.raises(JsonlError, match=r"openai/gsm8k not found; .* is named hf:openai/gsm8k"):
        Dataset(Path("openai/gsm8k"))


@pytest.mark.parametrize("name", ["nothing", "nothing/here", "."])
def test_what_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(JsonlError, match=r"input file .* not found|contains no \.parquet, \.arrow, \.jsonl"):
        Dataset(tmp_path / name)


@pytest.mark.parametrize(
    "state", ["{", "{}", '{"_data_files": [{"filename": "../x.arrow"}]}', '{"_data_files": [{"filename": "x.arrow"}]}']
)
def test_a_saved_data_set_that_is_damaged_is_told(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "state.json").write_text(state)
    (tmp_path / "x.arrow").touch()  # a file outside of the folder is none of its files
    with pytest.raises(JsonlError, match=r"state\.json"):
        Dataset(folder)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "x.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(JsonlError, match=r'pip install "gymq\[datasets\]"'):
        read(path)


def test_a_row_that_does_not_fit_is_told_with_file_and_row(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", [row(0), {"n": 1}])
    with (
        Materialisation(MaterialiseOptions(agent_name="a")) as made,
        pytest.raises(RowError, match=r"x\.parquet:2: the row has no prompt"),
    ):
        list(made.rows(Dataset(path)))


def test_the_digest_is_that_of_all_files(tmp_path: Path) -> None:
    first = write_parquet(tmp_path / "train-00000-of-00002.parquet", ROWS[:1])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", ROWS[1:2])
    before = Dataset(tmp_path).digest()
    write_parquet(first, ROWS[2:3])
    assert Dataset(tmp_path).digest() != before
