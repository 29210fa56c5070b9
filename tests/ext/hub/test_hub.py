"""Data sets of the Hugging Face Hub: a server with its API, and the Hub's own library."""

import io
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError
from gymq.ext.hub import CONVERTED, HubName, choose, fetch, fetch_file
from tests.support.compatibility import record

from .hub_server import Hub, running_hub

library = pytest.importorskip("huggingface_hub", reason='huggingface_hub is not installed: pip install "gymq[hub]"')
pa = pytest.importorskip("pyarrow", reason='pyarrow is not installed: pip install "gymq[datasets]"')
from pyarrow import parquet  # type: ignore[import-untyped]  # noqa: E402

Rows = list[dict[str, Any]]
ROWS = [{"question": f"{number} + {number}?", "expected_answer": str(2 * number)} for number in range(300)]


def table(rows: Rows) -> bytes:
    made = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), made)
    return made.getvalue()


def lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    import huggingface_hub.constants as constants

    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def read(name: str) -> Rows:
    return [json.loads(line) for line in Dataset(Path(name))]


SPLITS = {
    "README.md": b"# Sums\n",
    "data/train-00000-of-00002.parquet": table(ROWS[:100]),
    "data/train-00001-of-00002.parquet": table(ROWS[100:200]),
    "data/test-00000-of-00001.parquet": table(ROWS[200:]),
}


def test_the_files_of_a_split_are_fetched_once(hub: Hub) -> None:
    hub.add("org/sums", SPLITS)
    assert read("hf:org/sums:train") == ROWS[:200]
    before = len(hub.downloads(".parquet"))
    assert before == 2  # the other split is not fetched
    assert read("hf:org/sums:train") == ROWS[:200]
    assert len(hub.downloads(".parquet")) == before


def test_of_several_splits_one_has_to_be_named(hub: Hub) -> None:
    hub.add("org/sums", SPLITS)
    with pytest.raises(
        JsonlError, match=r"hf:org/sums has several splits: test, train; name one, as in hf:org/sums:test$"
    ):
        Dataset(Path("hf:org/sums"))
    with pytest.raises(JsonlError, match=r"there is no split dev; there are: test, train"):
        Dataset(Path("hf:org/sums:dev"))


def test_the_head_of_the_readme_says_which_files_belong_to_a_split(hub: Hub) -> None:
    card = """---
configs:
- config_name: easy
  data_files:
  - split: train
    path: easy/*.jsonl
- config_name: hard
  default: true
  data_files:
  - {split: train, path: ["hard/a.jsonl", "hard/b.jsonl"]}
  - {split: test, path: hard/t-*.jsonl}
---
# Text
"""
    names = ("easy/one.jsonl", "hard/a.jsonl", "hard/b.jsonl", "hard/t-1.jsonl")
    hub.add("org/sums", {"README.md": card.encode(), **{name: lines([{"n": name}]) for name in names}})
    assert read("hf:org/sums/hard:train") == [{"n": "hard/a.jsonl"}, {"n": "hard/b.jsonl"}]
    assert read("hf:org/sums/hard:test") == [{"n": "hard/t-1.jsonl"}]
    assert read("hf:org/sums/easy") == [{"n": "easy/one.jsonl"}]
    with pytest.raises(JsonlError, match="several configurations: easy, hard; name one, as in hf:org/sums/easy"):
        Dataset(Path("hf:org/sums"))


def test_a_revision_stays_what_it_is_when_the_data_set_changes(hub: Hub) -> None:
    repository = hub.add("org/sums", {"train.jsonl": lines(ROWS[:1])})
    old = repository.commit("main")
    repository.push({"train.jsonl": lines(ROWS[1:3])})
    assert read("hf:org/sums") == ROWS[1:3]
    assert read(f"hf:org/sums@{old}") == ROWS[:1]
    with pytest.raises(JsonlError, match=r"hf:org/sums@v9: the data set has no such revision"):
        Dataset(Path("hf:org/sums@v9"))


def test_files_that_cannot_be_read_are_taken_as_the_hub_converts_them(hub: Hub) -> None:
    repository = hub.add("org/sums", {"README.md": b"", "sums.csv": b"a,b\n"})
    repository.push({"default/train/0000.parquet": table(ROWS[:5])}, CONVERTED)
    assert read("hf:org/sums:train") == ROWS[:5]


def test_an_interrupted_download_is_resumed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 256)  # what is kept of a broken download
    hub.add("org/sums", {"train.parquet": table(ROWS)})
    hub.breaks_off_after = 1000
    assert read("hf:org/sums") == ROWS
    assert [span for _, span in hub.downloads(".parquet")] == [None, "bytes=768-"]
    result = "splits, revisions, tokens, checksums, resumed downloads, use without a connection"
    record(
        "Hugging Face Hub: data sets", f"huggingface_hub {library.__version__}", "a local server with its API", result
    )


@pytest.mark.parametrize("name", ["train.parquet", "train.jsonl"])
def test_a_file_that_arrives_damaged_is_refused_and_fetched_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = table(ROWS) if name.endswith("parquet") else lines(ROWS)
    hub.add("org/sums", {name: content})
    monkeypatch.setattr("tests.ext.hub.hub_server.LARGE", (".parquet", ".jsonl"))
    hub.damages = True
    with pytest.raises(JsonlError, match=rf"{name} arrived damaged: its checksum is .*; it is deleted"):
        read("hf:org/sums")
    hub.damages = False
    assert read("hf:org/sums") == ROWS


def test_the_checksum_of_a_small_file_is_that_of_git(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/sums", {"train.jsonl": lines(ROWS[:3])})
    assert read("hf:org/sums") == ROWS[:3]
    monkeypatch.setattr("tests.ext.hub.hub_server.git_sha1", lambda content: "0" * 40)
    hub.add("org/other", {"train.jsonl": lines(ROWS[:4])})
    with pytest.raises(JsonlError, match="arrived damaged"):
        read("hf:org/other")


def test_a_hub_that_is_down_costs_a_sentence_or_nothing(hub: Hub) -> None:
    hub.add("org/sums", {"train.jsonl": lines(ROWS[:3])})
    assert read("hf:org/sums") == ROWS[:3]
    hub.is_down = True
    assert read("hf:org/sums") == ROWS[:3]  # as it was
    with pytest.raises(JsonlError, match=r"^hf:org/sums:test: there is no split test; there are: train$"):
        read("hf:org/sums:test")
    with pytest.raises(JsonlError, match=r"^hf:org/never: the Hub cannot be reached, and it was not fetched before"):
        read("hf:org/never")


def test_a_gated_data_set_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/secret", {"train.jsonl": lines(ROWS[:3])}, is_gated=True)
    with pytest.raises(JsonlError, match="only to users who accepted its terms: accept them there, and set HF_TOKEN"):
        read("hf:org/secret")
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert read("hf:org/secret") == ROWS[:3]


def test_a_data_set_that_is_not_there_is_named(hub: Hub) -> None:
    with pytest.raises(JsonlError, match=r"^hf:org/none: the Hub has no such data set, or it is private"):
        read("hf:org/none")


def test_one_file_is_fetched_by_its_path(hub: Hub) -> None:
    hub.add("org/sums", {"a/rows.jsonl": lines(ROWS[:2]), "b.txt": b"x"})
    assert fetch_file("org/sums", "b.txt").read_bytes() == b"x"
    with pytest.raises(JsonlError, match=r"hf:org/sums has no file c\.txt"):
        fetch_file("org/sums", "c.txt")


@pytest.mark.parametrize(
    "text",
    ["hf:sums", "hf:../x", "hf:a/b/c/d", "hf:a/..", "hf:a/b@../../x", "hf:a/b:", "hf:a/b@", "hf:a/b:x/y", "hf:a b/c"],
)
def test_a_name_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(JsonlError, match=r"is named hf:OWNER/NAME\[/CONFIGURATION\]\[@REVISION\]\[:SPLIT\]"):
        HubName.parse(text)


@pytest.mark.parametrize("text", ["hf:a/b", "hf:a/b/c@v1.0:test", "hf:a/b@refs/convert/parquet:train"])
def test_a_name_is_written_as_it_is_read(text: str) -> None:
    assert str(HubName.parse(text)) == text


@pytest.mark.parametrize(
    ("paths", "name", "chosen"),
    [
        (["train.jsonl"], "hf:a/b", ["train.jsonl"]),
        (["rows.parquet"], "hf:a/b:train", ["rows.parquet"]),
        (["a/dev.jsonl", "a/train.jsonl"], "hf:a/b/a:validation", ["a/dev.jsonl"]),
        (["c/test/0000.parquet", "d/test/0000.parquet"], "hf:a/b/d:test", ["d/test/0000.parquet"]),
        (["x-00000-of-00002.parquet", "x-00001-of-00002.parquet", "y-00000-of-00001.parquet"], "hf:a/b:y", ["y-*"]),
    ],
)
def test_names_and_folders_say_what_a_split_is(paths: list[str], name: str, chosen: list[str]) -> None:
    assert all(map(fnmatchcase, choose(HubName.parse(name), paths, {}), chosen))


def test_a_configuration_may_be_a_folder() -> None:
    paths = ["main/train.jsonl", "main/test.jsonl", "hard/train.jsonl", "train.jsonl"]
    card = {"configs": [{"config_name": "usual", "data_dir": "main"}, {"config_name": "hard", "data_dir": "hard/"}]}
    assert choose(HubName.parse("hf:a/b/usual:train"), paths, card) == ["main/train.jsonl"]
    assert choose(HubName.parse("hf:a/b/hard"), paths, card) == ["hard/train.jsonl"]
    with pytest.raises(JsonlError, match="has several configurations: hard, usual"):
        choose(HubName.parse("hf:a/b:train"), paths, card)


@pytest.mark.parametrize(
    "field", ["config_name: {}", "data_dir: {}", "data_files: [{{split: {}}}]", "data_files: [{{path: {}}}]"]
)
def test_a_card_whose_values_repeat_each_other_without_end_costs_nothing(hub: Hub, field: str) -> None:
    tens = "".join(f"a{n + 1}: &a{n + 1} [{', '.join(10 * [f'*a{n}'])}]\n" for n in range(30))
    card = f"---\na0: &a0 [x]\n{tens}configs:\n- {field.format('*a30')}\n---\n"
    hub.add("org/sums", {"README.md": card.encode(), "sums.jsonl": lines(ROWS)})
    assert read("hf:org/sums") == ROWS


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(JsonlError, match=r'hf:a/b: reading it needs a package: pip install "gymq\[hub\]"'):
        fetch("hf:a/b")
