"""A run of the simulated model whose rows have nothing to play says nothing about an environment."""

import json
from pathlib import Path

import pytest

from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.own_solutions import nothing_to_play
from gymq.runs.collection.plan import RunPlan

SIMULATED = ["policy_model = simulated_model"]
PLAIN = {"responses_create_params": {"input": "1 + 1?"}, "reward": 0.0}
SOLVED = {"responses_create_params": {"input": "1 + 1?", "metadata": {"simulated_solution": "2"}}, "reward": 1.0}


@pytest.mark.parametrize(
    ("models", "lines", "expected"),
    [
        (SIMULATED, [PLAIN, PLAIN], True),
        (SIMULATED, [PLAIN, SOLVED], False),
        (SIMULATED, [], False),
        (["policy_model = a model"], [PLAIN], False),
        ([], [PLAIN], False),
    ],
)
def test_rows_without_a_solution_are_noticed(tmp_path: Path, models: list[str], lines: list[object], expected: bool):
    output = tmp_path / "rollouts.jsonl"
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = RunPlan(CollectOptions(tmp_path / "rows.jsonl", output, MaterialiseOptions()), models=models)
    assert nothing_to_play(plan) is expected
