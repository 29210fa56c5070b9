"""What every folder of a resources worker holds: rows that fit, a configuration that loads, an example that runs."""

import json
import re
import runpy
from pathlib import Path

import pytest

import gymq
from gymq.config import load
from gymq.execution.loading import registry

RESOURCES = Path(__file__).parents[2] / "workers" / "resources"
MODEL = RESOURCES.parent / "models" / "simulated_model" / "config.yaml"
NAMES = sorted(path.parent.name for path in RESOURCES.glob("*/worker.py"))
TAKES_LONG = {
    *("aviary", "ether0", "ifbench", "math_with_judge", "newton_bench", "ns_tools", "polymath", "reasoning_gym"),
    "swerl_gen",
}

_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_five_example_rows_that_fit(name):
    author = registry.find_class("resources", name)
    lines = (RESOURCES / name / "data" / "example.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    for line in lines:
        for row_type in {author.row_type, author.seed_row_type}:
            row_type.model_validate_json(line)


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_loads_and_fits_its_workers(name):
    config = load([MODEL, RESOURCES / name / "config.yaml"], env_yaml=None)
    for instance in config.instances:
        worker = registry.find_class(instance.kind, instance.implementation)
        worker(instance.options, name=instance.name)
    agents = {instance.name for instance in config.instances if instance.kind == "agents"}
    rows = (RESOURCES / name / "data" / "example.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(row)["agent_ref"]["name"] for row in rows} <= agents


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in TAKES_LONG else []) for name in NAMES]
)
def test_the_example_in_the_documentation_runs(name, tmp_path, monkeypatch, capsys):
    example = _PYTHON.search((RESOURCES / name / "README.md").read_text(encoding="utf-8"))
    assert example, "the README has no example in Python"
    script = tmp_path / "example.py"
    script.write_text(example[1], encoding="utf-8")
    monkeypatch.chdir(RESOURCES.parents[1])
    try:
        runpy.run_path(str(script), run_name="__main__")
    except gymq.OptionsError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))  # an extra is missing
    shown = re.search(r"Verdict\(reward=(-?[\d.]+)", capsys.readouterr().out)
    assert shown
    assert float(shown[1]) > 0
