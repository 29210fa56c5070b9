"""Benchmarks of NeMo Gym by name: listed, and collected with the simulated model."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymq.config.benchmarks import Benchmark, benchmarks
from gymq.workers import SHIPPED
from tests.cli.conftest import Command, entry
from tests.support.compatibility import record

from .nemo_gym_package import CURRENT, fetched

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


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, Any]]:
    """What `gymq list` says of each benchmark."""
    command = [*entry(), "list", "benchmarks", "--search-dir", str(PACKAGE), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return {one["name"]: one for one in map(json.loads, shown.stdout.splitlines())}


def test_every_benchmark_runs_or_says_what_it_lacks(listed: dict[str, dict[str, Any]]) -> None:
    problems = {name: facts["problem"] for name, facts in listed.items() if "problem" in facts}
    others = {
        name: problem for name, problem in problems.items() if not re.match(LACKING, problem) and name not in NOT_ALONE
    }
    assert others == {}
    running = [name for name in listed if name not in problems]
    assert running == [one.name for one in ours()]
    assert all("rows" in listed[name]["needs"] for name in running)
    wanting = ", ".join(f"`{name}`" for name in running if name in WANTING)
    result = (
        f"{len(running)} of {len(listed)} have their environment here; {len(running) - len(WANTING)} run with rows of "
        f"our own and the simulated model; need a judge's endpoint, data or Lean: {wanting}"
    )
    record("NeMo Gym: benchmarks by name", CURRENT, "its package, simulated_model", result)


@pytest.mark.parametrize("benchmark", [pytest.param(one, marks=nightly(one), id=one.name) for one in ours()])
def test_a_benchmark_is_collected_by_its_name(
    benchmark: Benchmark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gymq: Command,
    listed: dict[str, dict[str, Any]],
) -> None:
    monkeypatch.chdir(tmp_path)
    row = sample_row(benchmark, listed[benchmark.name]["environment"])
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
