"""`gymq.load` reads the file of a run: ours, and one that has no other file beside it, as NeMo Gym's."""

import json

import pytest

import gymq
from gymq.testing import prompt, reply


def line(task, rollout, reward, **fields):
    response = reply("Bern") | {"usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}}
    row = {"_ng_task_index": task, "_ng_rollout_index": rollout, **prompt("Capital?"), "ground_truth": "Bern"}
    return json.dumps(row | {"response": response, "reward": reward} | fields) + "\n"


@pytest.fixture
def stored(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(line(task, rollout, float(rollout == 0)) for task in range(3) for rollout in range(2)))
    return file


def test_an_output_alone_is_enough(stored):
    run = gymq.load(stored)
    assert run.reward is not None
    assert run.reward.value == 0.5
    assert {k: estimate.value for k, estimate in run.pass_at_k.items()} == {1: 50.0, 2: 100.0}
    assert run.failures == []
    assert len(list(run.rollouts)) == 6
    frame = run.to_pandas()
    assert list(frame["expected"]) == ["Bern"] * 6
    assert list(frame["output_tokens"]) == [2] * 6
    assert repr(run).startswith(f"RunResult('{stored}', rollouts=6, reward=0.500,")


def test_the_threshold_decides_what_passes(stored):
    assert gymq.load(stored, pass_threshold=0.0).pass_at_k[1].value == 100.0


def test_a_rollout_without_anything_to_show_is_shown(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_text("")
    run = gymq.load(file)
    assert (run.reward, run.pass_at_k, list(run.rollouts)) == (None, {}, [])
    assert list(run.to_pandas().columns)[:3] == ["task", "rollout", "prompt"]
    assert run._repr_html_()


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="file not found; give the rollouts file"):
        gymq.load(tmp_path / "none.jsonl")
