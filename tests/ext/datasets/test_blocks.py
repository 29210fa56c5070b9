"""`gymq data` with the data sets of a benchmark: listed, shown, and prepared by their scripts."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command

PREPARE = """
import json
from pathlib import Path
from nemo_gym.global_config import get_hf_token

OUTPUT = Path(__file__).parent / "data" / "sums.jsonl"


def prepare():
    print("working")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text("".join(json.dumps({"question": f"{n}?", "expected_answer": str(n)}) + "\\n" for n in range(7)))
    return OUTPUT
"""
CONFIG = """
config_paths: [workers/resources/mcqa/config.yaml]
sums_agent:
  _inherit_from: mcqa_simple_agent
  responses_api_agents:
    simple_agent:
      datasets:
      - {name: sums, type: benchmark, jsonl_fpath: benchmarks/sums/data/sums.jsonl,
         prepare_script: benchmarks/sums/prepare.py, num_repeats: 3}
"""


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A benchmark of our own with this script."""
    monkeypatch.chdir(tmp_path)

    def write(script: str) -> Path:
        folder = tmp_path / "benchmarks" / "sums"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG)
        (folder / "prepare.py").write_text(script)
        return folder / "data" / "sums.jsonl"

    return write


def test_a_script_makes_the_rows_in_a_sandbox(sums: Callable[[str], Path], gymq: Command) -> None:
    file = sums(PREPARE)
    done = gymq("data", "prepare", "sums")
    assert (done.status, done.out) == (0, "7 rows in benchmarks/sums/data/sums.jsonl\n"), done.err
    assert len(file.read_text().splitlines()) == 7
    listed = json.loads(gymq("data", "list", "--benchmark", "sums", "--json").out.splitlines()[-1])
    assert listed == {
        "name": "sums",
        "kind": "benchmark",
        "agent": "sums_agent",
        "num_repeats": 3,
        "file": "benchmarks/sums/data/sums.jsonl",
        "is_ready": True,
    }
    shown = gymq("data", "show", "sums")
    assert "7 rows" in shown.out
    assert '{"question": "0?", "expected_answer": "0"}' in shown.out


def test_a_script_behind_a_link_makes_the_rows_too(
    sums: Callable[[str], Path], gymq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums(PREPARE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "hub").symlink_to(tmp_path)
    monkeypatch.chdir(elsewhere)
    done = gymq("data", "prepare", "sums", "--benchmark", "sums", "--search-dir", "hub")
    assert (done.status, done.out) == (0, "7 rows in benchmarks/sums/data/sums.jsonl\n"), done.err


def test_a_script_that_wants_out_of_the_sandbox_is_refused_with_what_helps(
    sums: Callable[[str], Path], gymq: Command
) -> None:
    file = sums("import urllib.request\ndef prepare():\n    urllib.request.urlopen('http://127.0.0.1:9')\n")
    done = gymq("data", "prepare", "sums")
    assert done.status == 2
    assert re.search(r"data set sums: .*prepare\.py ended with status 1: .*urlopen error", done.err), done.err
    assert "--network runs it as you, without a sandbox" in " ".join(done.err.split())
    assert not file.exists()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("p.write_text('1\\n'); return p", "row 1: the line is JSON, but not an object"),
        ("p.write_text(''); return p", "no rows were made"),
    ],
)
def test_what_a_script_makes_is_checked(sums: Callable[[str], Path], gymq: Command, body: str, problem: str) -> None:
    file = sums(f"from pathlib import Path\ndef prepare():\n    p = Path(__file__).with_name('x'); {body}\n")
    done = gymq("data", "prepare", "sums")
    assert (done.status, problem in done.err) == (2, True), done.err
    assert not file.exists()


def test_rows_of_a_configuration_need_no_policy(gymq: Command) -> None:
    config = ("-c", "workers/resources/mcqa/config.yaml")
    assert [gymq("data", *command, *config).status for command in (["list"], ["show", "example"])] == [0, 0]
    assert gymq("data", "prepare", "example", *config).status == 0


def test_rows_that_cannot_be_shown_cost_a_sentence_with_their_place(tmp_path: Path, gymq: Command) -> None:
    rows, config = tmp_path / "rows.jsonl", tmp_path / "config.yaml"
    rows.write_text('{"expected_answer": "A"}\n{"broken\n')
    shown = gymq("data", "show", rows)
    assert (shown.status, shown.err.startswith(f"gymq: {rows}:2: the line is not valid JSON")) == (2, True), shown.err
    block = f"{{name: sums, type: example, jsonl_fpath: {tmp_path}/none.jsonl}}"
    config.write_text(
        "config_paths: [workers/resources/mcqa/config.yaml, workers/models/simulated_model/config.yaml]\n"
        f"mcqa_simple_agent: {{responses_api_agents: {{simple_agent: {{datasets: [{block}]}}}}}}\n"
    )
    shown = gymq("data", "show", "sums", "-c", config)
    assert (shown.status, "none.jsonl does not exist, and nothing in its block makes it" in shown.err) == (2, True)


def test_the_command_that_makes_missing_rows_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gymq: Command
) -> None:
    folder = tmp_path / "their hub" / "benchmarks" / "sums"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "config_paths: [workers/resources/mcqa/config.yaml]\n"
        "sums_agent:\n  _inherit_from: mcqa_simple_agent\n  responses_api_agents:\n    simple_agent:\n"
        "      datasets: [{name: sums, type: benchmark, jsonl_fpath: benchmarks/sums/sums.jsonl,"
        " prepare_script: benchmarks/sums/prepare.py}]\n"
    )
    (folder / "prepare.py").touch()
    monkeypatch.chdir(tmp_path)
    error = gymq("data", "show", "sums", "--benchmark", "sums", "--search-dir", "their hub").err
    assert "`gymq data prepare sums --benchmark sums --search-dir 'their hub'` makes them" in error
    assert "no policy is given" not in error  # nothing asks one
