"""`gymq.load` reads the file of a run: ours, and one that has no other file beside it, as NeMo Gym's."""

import json

import pytest

import gymq
from gymq.data.rows import RowError
from gymq.data.run_files import refused_row
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


def test_a_failed_run_looks_failed(stored):
    *kept, last = stored.read_text().splitlines()
    stored.write_text("".join(f"{line}\n" for line in kept))
    failure = {"_ng_failure_class": "verifier_failed", "agent_ref": {"name": "a"}}
    lost = {name: value for name, value in json.loads(last).items() if name not in ("reward", "response")}
    stored.with_name("rollouts_failures.jsonl").write_text(json.dumps({**lost, **failure}) + "\n")
    run = gymq.load(stored)
    assert run.statistics is not None
    assert run.reward is not None
    assert run.statistics.num_failed == 1
    assert run.statistics.lower_bound == pytest.approx(0.5)
    assert run.reward.value > 0.5
    for part in ("5 of 6 rollouts", "with the failed ones as 0", "0.500"):
        assert part in run._repr_html_()


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="file not found; give the rollouts file"):
        gymq.load(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    "changed",
    [
        {"responses_create_params": []},
        {"responses_create_params": {"input": None}},
        {"responses_create_params": {"input": ["Capital?", {"role": "user", "content": ["Capital?"]}]}},
        {"response": "Bern"},
        {"response": {"usage": [7], "output": ["Bern", {"type": "message", "role": "assistant", "content": [3]}]}},
        {"_ng_task_index": "a"},
        {"_ng_task_index": [1]},
    ],
)
def test_what_is_odd_in_a_rollout_is_left_out_of_a_data_frame(stored, changed):
    with stored.open("a") as file:
        file.write(json.dumps(json.loads(line(9, 0, 1.0)) | changed) + "\n")
    assert len(gymq.load(stored).to_pandas()) == 7


def test_a_line_that_is_no_rollout_is_named(stored):
    with stored.open("a") as file:
        file.write("[]\n")
    with pytest.raises(RowError, match=r"rollouts\.jsonl:7: "):
        gymq.load(stored).to_pandas()


def test_rows_that_were_refused_are_no_lines_of_a_data_frame(stored):
    stored.with_name("rollouts_failures.jsonl").write_bytes(refused_row("no prompt") + b"\n")
    assert len(gymq.load(stored).to_pandas()) == 6


def test_a_threshold_is_a_number(stored):
    with pytest.raises(ValueError, match=r"^pass_threshold: must be a number, not 'high'$"):
        gymq.load(stored, pass_threshold="high")  # type: ignore[arg-type]
