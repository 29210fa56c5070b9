"""A run of the simulated model whose rows have nothing to play says nothing about an environment."""

import json
from pathlib import Path

import pytest

from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.own_solutions import nothing_to_play, unsolved_rows
from gymq.runs.collection.plan import RunPlan
from gymq.testing import reply

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


@pytest.mark.parametrize(
    ("reward", "text", "expected"),
    [
        (1.0, "2", []),
        (0.5, "2", ["{rows}:2: its own simulated_solution earned 0.5, not 1"]),
        (0.0, "3", []),  # another reply than the solution
    ],
)
def test_rows_whose_solution_earns_less_than_the_full_reward_are_named(
    tmp_path: Path, reward: float, text: str, expected: list[str]
):
    rows, output = tmp_path / "rows.jsonl", tmp_path / "rollouts.jsonl"
    row = {"responses_create_params": {"input": "1 + 1?"}, "agent_ref": {"name": "agent"}}
    params = {"input": "1 + 1?", "metadata": {"simulated_solution": '[[{"text": "2"}]]'}}
    solved = row | {"responses_create_params": params}
    rows.write_text("".join(json.dumps(one) + "\n" for one in (row, solved)))
    result = {"_ng_task_index": 1, "_ng_rollout_index": 0, "response": reply(text), "reward": reward}
    output.write_text(json.dumps(solved | result) + "\n")
    plan = RunPlan(CollectOptions(rows, output, MaterialiseOptions()), models=SIMULATED)
    assert unsolved_rows(plan) == [sentence.format(rows=rows) for sentence in expected]
