import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError
from gymq.data.materialise import Materialisation, MaterialiseOptions


def written(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    content = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return file


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in Dataset(path) if line]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "question,answer\nWhat is 2+2?,4\nA comma, \n"),
        ("a.csv", 'question,answer\r\n"What is 2+2?",4\r\n"A comma"," "\r\n\r\n'),
        ("a.csv.gz", "\ufeffquestion,answer\nWhat is 2+2?,4\nA comma, \n"),
        ("a.tsv", "question\tanswer\nWhat is 2+2?\t4\nA comma\t \n"),
        ("a.json", '[{"question": "What is 2+2?", "answer": "4"},\n {"question": "A comma",\n  "answer": " "}]'),
        ("a.json", '{"question": "What is 2+2?", "answer": "4"}\n{"question": "A comma", "answer": " "}\n'),
    ],
)
def test_rows_in_other_formats_are_those_of_jsonl(tmp_path: Path, name: str, text: str) -> None:
    assert rows_of(written(tmp_path, name, text)) == [
        {"question": "What is 2+2?", "answer": "4"},
        {"question": "A comma", "answer": " "},
    ]


def test_a_cell_may_have_lines_quotes_and_any_length(tmp_path: Path) -> None:
    long = "x" * 300_000
    (row,) = rows_of(written(tmp_path, "a.csv", f'prompt,answer\n"one\ntwo, ""three""\n{long}",007\n'))
    assert row == {"prompt": f'one\ntwo, "three"\n{long}', "answer": "007"}


def test_an_empty_cell_is_no_field_and_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    assert rows_of(written(tmp_path, "a.csv", ",prompt,hint\n0,Why?,\n1,How?\n")) == [
        {"prompt": "Why?"},
        {"prompt": "How?"},
    ]


def test_parameters_in_a_column_are_json_text(tmp_path: Path) -> None:
    text = 'prompt,responses_create_params\nWhy?,"{""temperature"": 0}"\n'
    (row,) = rows_of(written(tmp_path, "a.csv", text))
    assert row == {"prompt": "Why?", "responses_create_params": {"temperature": 0}}


def test_a_row_of_a_table_is_named_by_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", "question,answer\nWhy?,a\n,b\n\nHow?,c,d\n")
    dataset = Dataset(file)
    refused: list[str] = []

    class Lines:
        name = dataset.name

        def __iter__(self):
            return dataset.lines(refuse)

    def refuse(number: int, problem: str) -> None:
        refused.append(f"{dataset.place(number)}: {problem}")

    with Materialisation(MaterialiseOptions(agent_name="a")) as made:
        assert len(list(made.rows(Lines(), refuse))) == 1
    assert refused == [
        f"{file}:3: the row has no prompt: its fields are answer",
        f"{file}:5: the row has 3 cells, and the header has 2",
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "a,a\n1,2\n", "two columns are named 'a'"),
        ("a.csv", 'a\nx\n"open\n', "cannot be read after row 1: unexpected end of data"),
        ("a.csv", b"a\nx\n\xff\n", "not UTF-8 after row 1: byte 0 of a line"),
        ("a.csv", "a\n".encode("utf-16"), "UTF-16, not UTF-8"),
        ("a.json", "[1, 2", "not a JSON array"),
        ("a.csv", "a\n1,2\n", "a.csv: row 1: the row has 2 cells, and the header has 1"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    with pytest.raises(JsonlError) as caught:
        rows_of(written(tmp_path, name, text))
    assert said in str(caught.value)


def test_a_split_of_a_folder_may_be_csv(tmp_path: Path) -> None:
    written(tmp_path, "train.csv", "prompt\na\n")
    written(tmp_path, "test.tsv", "prompt\nb\n")
    assert rows_of(tmp_path / "test") == [{"prompt": "b"}]
