"""NeMo Gym's commands, with its own arguments."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gymq.cli.actions.ng import PROGRAMS
from tests.support.ports import free_port

from .conftest import Command

CONFIG = "+config_paths=[workers/resources/mcqa/config.yaml,workers/models/simulated_model/config.yaml]"
ROW = {
    "responses_create_params": {"input": "A or B?", "metadata": {"simulated_solution": '[[{"text": "\\\\boxed{B}"}]]'}},
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
}


@pytest.fixture
def rows(here: Path) -> Path:
    (here / "rows.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"uuid": "2"}) + "\n")
    return here / "rows.jsonl"


def test_rows_are_collected_with_the_arguments_of_nemo_gym(here: Path, rows: Path, gymq: Command) -> None:
    command = ["ng", "collect-rollouts", CONFIG, "+agent_name=mcqa_simple_agent", "+input_jsonl_fpath=rows.jsonl"]
    more = ["+output_jsonl_fpath=out.jsonl", "+limit=1", "+num_repeats=3", "+num_samples_in_parallel=2"]
    done = gymq(*command, *more, "+responses_create_params={temperature: 0.5}")
    assert done.status == 0, done.err
    results = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    assert [result["_ng_rollout_index"] for result in sorted(results, key=lambda one: one["_ng_rollout_index"])] == [
        0,
        1,
        2,
    ]
    assert {result["responses_create_params"]["temperature"] for result in results} == {0.5}

    again = gymq(*command, "+output_jsonl_fpath=out.jsonl", "+num_repeats=1", "+resume_from_cache=false")
    assert again.status == 0, again.err
    assert len((here / "out.jsonl").read_text().splitlines()) == 2  # another run, in the place of the first


def test_a_collection_says_what_it_lacks(here: Path, gymq: Command) -> None:
    done = gymq("ng", "collect-rollouts", CONFIG, "+output_jsonl_fpath=out.jsonl")
    assert (done.status, done.err) == (2, "gymq: ng_collect_rollouts needs +input_jsonl_fpath=...\n")
    done = gymq("ng", "collect-rollouts", "+input_jsonl_fpath=a", "+output_jsonl_fpath=b", "+num_repeats=[1]")
    assert done.err == "gymq: num_repeats must be a whole number, not [1]\n"


def test_statistics_are_written_beside_the_rollouts(here: Path, rows: Path, gymq: Command) -> None:
    collected = gymq("ng", "collect-rollouts", CONFIG, "+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl")
    assert collected.status == 0, collected.err
    (here / "out_reward_profiling.jsonl").unlink()
    files = ["+materialized_inputs_jsonl_fpath=out_materialized_inputs.jsonl", "+rollouts_jsonl_fpath=out.jsonl"]
    done = gymq("ng", "reward-profile", *files)
    assert done.status == 0, done.err
    assert len((here / "out_reward_profiling.jsonl").read_text().splitlines()) == 2
    wrong = gymq("ng", "reward-profile", *files, "+allow_partial_rollout=true")
    assert wrong.err == ("gymq: no setting allow_partial_rollout is known; did you mean allow_partial_rollouts?\n")


def test_an_entrypoint_names_a_worker(here: Path, gymq: Command) -> None:
    assert gymq("ng", "test", "+entrypoint=resources_servers/none_such").status == 2
    assert "+entrypoint" in gymq("ng", "test").err


@pytest.fixture
def programs(here: Path, gymq: Command) -> Path:
    assert gymq("ng", "install", "bin").status == 0
    return here / "bin"


def test_programs_are_not_written_over_others(here: Path, gymq: Command, programs: Path) -> None:
    assert sorted(path.name for path in programs.iterdir()) == sorted(f"ng_{name}" for name in PROGRAMS)
    assert gymq("ng", "install", "bin").status == 0  # its own
    (programs / "ng_run").write_text("#!/bin/sh\n")
    refused = gymq("ng", "install", "bin")
    assert refused.status == 2
    assert "ng_run exists already" in refused.err
    assert gymq("ng", "install", "bin", "--overwrite").status == 0


def test_ng_run_serves_what_ng_collect_rollouts_and_ng_status_find(rows: Path, programs: Path) -> None:
    here = rows.parent
    environment = {name: value for name, value in os.environ.items() if name != "GYMQ_NATS"}
    port = free_port("127.0.0.1")
    head = f"+head_server={{host: 127.0.0.1, port: {port}}}"
    server = subprocess.Popen(
        [programs / "ng_run", CONFIG, head], cwd=here, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert f"http://127.0.0.1:{port}" in server.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_instances") as answer:
            assert "mcqa" in answer.read().decode()
        command = ["+agent_name=mcqa_simple_agent", "+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl"]
        collected = subprocess.run(
            [programs / "ng_collect_rollouts", *command], cwd=here, env=environment, capture_output=True, text=True
        )
        assert collected.returncode == 0, collected.stderr
        status = subprocess.run([programs / "ng_status"], cwd=here, env=environment, capture_output=True, text=True)
        assert "mcqa_simple_agent" in status.stdout
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert len((here / "out.jsonl").read_text().splitlines()) == 2
    assert sys.executable in (programs / "ng_run").read_text()
