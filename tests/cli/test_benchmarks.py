"""Benchmarks of NeMo Gym by name: listed, prepared, and collected with the simulated model."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.cli.actions.list import benchmark_facts
from gymq.config.benchmarks import Benchmark, benchmarks
from gymq.workers import SHIPPED
from tests.cli.conftest import Command
from tests.ext.nemo_gym.nemo_gym_package import CURRENT, fetched
from tests.support.compatibility import record

LACKING = "there is no (resources|agents|models) worker named"

NOT_ALONE = {
    "browsecomp": "its agent and its model's second instance are workers of NeMo Gym",
    "finance_sec_search/config_no_web_search": "needs a key of Tavily and a worker of NeMo Gym",
    "finance_sec_search/config_web_search": "needs a key of Tavily and a worker of NeMo Gym",
    "speed-bench/config_qualitative": "needs the address of a vLLM server, and a worker of NeMo Gym",
    "speed-bench/config_throughput_2k": "needs the address of a vLLM server, and a worker of NeMo Gym",
    "tau2": "its agent is a worker of NeMo Gym",
}
"""Benchmarks whose configuration does not load by itself, and why they cannot run here."""

JUDGE = "openai_base_url: expected a URL"
PROBLEMS = "HumanEval|[Mm][Bb][Pp][Pp]"
LEAN = "component_failed"
WANTING = {
    **dict.fromkeys(("arena_hard", "arena_hard_v2", "m_arena_hard", "m_arena_hard_v2"), JUDGE),
    "simpleqa": "openai_api_key: must be text",
    "birdbench": "the folder resources_servers/bird_sql/",
    **dict.fromkeys(("human_eval", "human_eval_infilling", "mbpp"), PROBLEMS),
    **dict.fromkeys(("minif2f", "mobench", "proofnet", "putnam_bench"), LEAN),
}
"""Benchmarks that need a judge's endpoint, data that has to be downloaded or Lean, and what says so."""

_FIELD = re.compile(r"(?<!\{)\{([A-Za-z_]+)\}")

PACKAGE = fetched(CURRENT)


def ours() -> list[Benchmark]:
    """The benchmarks whose environment gymq ships."""
    found = []
    for one in benchmarks([PACKAGE]):
        named = set(re.findall(r"resources_servers/(\w+)/configs/", one.config.read_text()))
        if named and all((SHIPPED / "workers" / "resources" / name).is_dir() for name in named):
            found.append(one)
    return found


OFTEN = {"ifeval"}
"""Benchmarks that are collected with every run of the tests: one with options to choose from, one without."""


def nightly(benchmark: Benchmark) -> list[pytest.MarkDecorator]:
    return [] if benchmark.name in OFTEN else [pytest.mark.nightly]


def sample_row(benchmark: Benchmark, environment: str) -> dict[str, Any]:
    """A row of the environment, with the fields that the benchmark's prompt names in the place of its prompt."""
    example = SHIPPED / "workers" / "resources" / environment / "data" / "example.jsonl"
    row: dict[str, Any] = json.loads(example.read_text().splitlines()[0])
    row.pop("agent_ref", None)
    for path in re.findall(r"prompt_config: *(\S+/\S+)", benchmark.config.read_text()):
        row["responses_create_params"].pop("input", None)
        prompt = yaml.safe_load((PACKAGE / path).read_text())
        for name in _FIELD.findall(f"{prompt.get('system', '')} {prompt['user']}"):
            row.setdefault(name, f"the {name}")
    return row


def test_every_benchmark_runs_or_says_what_it_lacks() -> None:
    found = {one.name: benchmark_facts(one) for one in benchmarks([PACKAGE])}
    others = {
        name: facts.problem
        for name, facts in found.items()
        if facts.problem and not re.match(LACKING, facts.problem) and name not in NOT_ALONE
    }
    assert others == {}
    running = [name for name, facts in found.items() if not facts.problem]
    assert running == [one.name for one in ours()]
    assert all("rows" in found[name].needs for name in running)
    wanting = ", ".join(f"`{name}`" for name in running if name in WANTING)
    result = (
        f"{len(running)} of {len(found)} have their environment here; {len(running) - len(WANTING)} run with rows of "
        f"our own and the simulated model; need a judge's endpoint, data or Lean: {wanting}"
    )
    record("NeMo Gym: benchmarks by name", CURRENT, "its package, simulated_model", result)


@pytest.mark.parametrize("benchmark", [pytest.param(one, marks=nightly(one), id=one.name) for one in ours()])
def test_a_benchmark_is_collected_by_its_name(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gymq: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = benchmark_facts(benchmark)
    row = sample_row(benchmark, facts.environment)
    ((where, *_),) = [re.findall(r"jsonl_fpath: *(\S*benchmarks/\S+)", benchmark.config.read_text())]
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(row) + "\n")
    search = ["--benchmark", benchmark.name, "--search-dir", PACKAGE]
    done = gymq("collect", *search, "-o", "out.jsonl", "--num-repeats", "2", "--json")
    if benchmark.name in WANTING:
        assert done.status in (2, 3)
        assert re.search(WANTING[benchmark.name], done.err + done.out), done.err + done.out
        return
    assert done.out, done.err
    summary = json.loads(done.out)
    assert (done.status, summary["rollouts"], summary["done"]) == (0, 2, 2), done.err + done.out
    asked = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["responses_create_params"]["input"]
    assert asked[-1]["role"] == "user"


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
