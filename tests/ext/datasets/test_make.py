"""`gymq data make`: rows of any environment that makes them, of any length, the same for the same seed."""

import json
from pathlib import Path

import pytest

from gymq.cli import make_app
from gymq.data.jsonl import JsonlError
from gymq.errors import UsageError
from gymq.execution.loading.registry import find_class
from gymq.ext.datasets.actions import makers
from gymq.ext.datasets.token_counts import estimated_tokens, token_counter

MAKER = '''
import gymq


class Numbers(gymq.Resources):
    """Rewards nothing."""

    row_kinds = ("even", "odd")

    @classmethod
    def make_rows(cls, wanted):
        for index in range(wanted.count):
            kind = wanted.kinds[index % len(wanted.kinds)]
            yield {"kind": kind, "seed": wanted.seed, "tokens": wanted.tokens, "counted": wanted.count_tokens("a b")}

    async def verify(self, request):
        return 0.0
'''


def run(*arguments: str, command: str = "make") -> None:
    assert make_app()(["data", command, *arguments], exit_on_error=False, result_action="return_value") == 0


@pytest.fixture
def maker(tmp_path: Path) -> str:
    file = tmp_path / "numbers.py"
    file.write_text(MAKER, encoding="utf-8")
    return str(file)


def test_rows_are_printed(maker, capfdbinary):
    run(maker, "--rows", "3", "--tokens", "70", "--seed", "4")
    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["even", "odd", "even"]
    assert rows[0] == {"kind": "even", "seed": 4, "tokens": 70, "counted": 2}


def test_rows_are_written_to_a_file_whole_or_not_at_all(maker, tmp_path, capsys):
    output = tmp_path / "rows.jsonl"
    run(maker, "--rows", "2", "--kind", "odd", "-o", str(output))
    assert [json.loads(line)["kind"] for line in output.read_text(encoding="utf-8").splitlines()] == ["odd", "odd"]
    assert "2 rows in" in capsys.readouterr().out
    with pytest.raises(UsageError, match="cannot be written"):
        run(maker, "-o", str(tmp_path / "missing" / "rows.jsonl"))


def test_rows_are_shown_where_a_collection_finds_them(maker, tmp_path, capsys):
    made = str(tmp_path / "rows.jsonl.gz")
    run(maker, "--rows", "3", "-o", made)
    run(made, command="show")
    assert "3 rows in" in capsys.readouterr().out
    run("workers/resources/mcqa/data/example.jsonl", command="show")
    assert "5 rows in" in capsys.readouterr().out
    with pytest.raises(JsonlError, match=r"input file nowhere\.jsonl not found"):
        run("nowhere.jsonl", command="show")


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are(maker):
    with pytest.raises(UsageError, match="no rows of the kind 'prime': even, odd"):
        run(maker, "--kind", "even", "prime")


def test_an_environment_that_makes_no_rows_is_refused_with_those_that_do():
    with pytest.raises(UsageError, match=r"mcqa makes no rows; these do: .*circle_click"):
        run("mcqa")


@pytest.mark.parametrize("name", makers())
def test_what_shipped_environments_make_are_rows_of_theirs(name, tmp_path):
    output = tmp_path / "rows.jsonl"
    run(name, "--rows", "3", "-o", str(output))
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    for line in lines:
        find_class("resources", name).row_type.model_validate_json(line)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("the lamp", 2), ("1234567", 3), ("a, b", 3), ("internationalisation", 3), ("\n\n", 2), ("a_1", 3)],
)
def test_the_estimate(text, tokens):
    assert estimated_tokens(text) == tokens


def test_a_tokenizer_that_cannot_be_loaded_is_named():
    with pytest.raises(UsageError):
        token_counter("/nowhere/at/all")
