"""`--benchmark NAME` judges by the published rules, so that figures compare, and reports it."""

import json
from pathlib import Path

import pytest

from gymq.cli.shared.configuration import read_config
from gymq.cli.shared.parameters import WorkerSources
from tests.cli.conftest import Command, row
from tests.cli.endpoint import Endpoint

RULER = """
config_paths: [workers/resources/ruler/config.yaml]
needles_agent:
  _inherit_from: ruler_simple_agent
  responses_api_agents:
    simple_agent:
      datasets:
        - name: needles
          type: benchmark
          jsonl_fpath: benchmarks/needles/needles.jsonl
          prepare_script: benchmarks/needles/prepare.py
"""
REPORTED = "ruler: judged as published (`hardened: false`), so that figures compare"


@pytest.fixture
def needles(here: Path) -> Path:
    """A benchmark whose only row earns half of the reward for "A", and all of it as published."""
    folder = here / "benchmarks" / "needles"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(RULER)
    content = row("Which letters?", "") | {"outputs": ["", "A"], "length": 1, "subset": "vt"}
    (folder / "needles.jsonl").write_text(json.dumps(content) + "\n")
    return here


def rewards(file: Path) -> list[float]:
    return [json.loads(line)["reward"] for line in file.read_text().splitlines()]


def test_a_benchmark_is_judged_as_published_and_scored_again_alike(
    needles: Path, gymq: Command, endpoint: Endpoint
) -> None:
    policy = ("--model-url", endpoint.url, "--model", "m")
    collected = gymq("collect", "--benchmark", "needles", *policy, "-o", "x.jsonl")
    assert collected.status == 0, collected.err
    assert collected.err.count(REPORTED) == 1
    assert rewards(needles / "x.jsonl") == [1.0]
    again = json.loads((needles / "x_run.json").read_text())["score_with"]
    simulated = ("--config", "workers/models/simulated_model/config.yaml")
    scored = gymq("score", "--rollouts", "x.jsonl", "-o", "y.jsonl", *again, *simulated)
    assert scored.status == 0, scored.err
    assert rewards(needles / "y.jsonl") == [1.0]


def test_a_verifier_that_is_hardened_explicitly_stays_so(needles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_config(WorkerSources(benchmark="needles"), ["++ruler.hardened=true"])
    assert config.instance("ruler").options["hardened"] is True
    assert REPORTED not in capsys.readouterr().err


def test_a_configuration_has_the_defaults_of_its_verifiers(needles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_config(WorkerSources(config=(needles / "benchmarks/needles/config.yaml",)), [], needs_policy=False)
    assert "hardened" not in config.instance("ruler").options
    assert REPORTED not in capsys.readouterr().err
