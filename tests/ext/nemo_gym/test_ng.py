"""NeMo Gym's commands, with its own arguments."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gymq.config.unknown import CONCURRENCY
from gymq.ext.nemo_gym.ng.collecting import PROGRAMS
from tests.cli.conftest import Command
from tests.support.ports import free_port

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
    done = gymq("ng", "collect-rollouts", "+input_jsonl_fpath=a", "+output_jsonl_fpath=b", f"+{CONCURRENCY}=-5")
    assert done.err == "gymq: num_samples_in_parallel must be a whole number of at least 1, not -5\n"


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


@pytest.mark.nightly
def test_repeats_may_be_a_number_for_each_agent(here: Path, rows: Path, gymq: Command) -> None:
    files = ["+agent_name=mcqa_simple_agent", "+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl"]
    done = gymq("ng", "collect-rollouts", CONFIG, *files, "+num_repeats={mcqa_simple_agent: 3, _default: 1}")
    assert done.status == 0, done.err
    assert len((here / "out.jsonl").read_text().splitlines()) == 6
    wrong = gymq("ng", "collect-rollouts", CONFIG, *files, "+num_repeats={mcqa_simple_agent: many}")
    assert wrong.err == "gymq: num_repeats.mcqa_simple_agent must be a whole number, not 'many'\n"
    missing = gymq("ng", "collect-rollouts", CONFIG, *files, "+num_repeats={other_agent: 2}")
    assert missing.status == 2
    assert "num_repeats has neither the row's agent 'mcqa_simple_agent' nor `_default`" in missing.err


@pytest.mark.nightly
def test_the_data_sets_of_a_split_are_collected_end_to_end(here: Path, rows: Path, gymq: Command) -> None:
    (here / "questions.jsonl").write_text('{"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"}\n')
    (here / "prompt.yaml").write_text("user: 'A or B? {expected_answer}'\n")
    datasets = (
        "++mcqa_simple_agent.responses_api_agents.simple_agent.datasets=["
        "{name: one, type: train, jsonl_fpath: rows.jsonl, num_repeats: 2, license: Apache 2.0},"
        "{name: two, type: train, jsonl_fpath: questions.jsonl, prompt_config: prompt.yaml, license: Apache 2.0},"
        "{name: three, type: validation, jsonl_fpath: nowhere.jsonl, license: Apache 2.0}]"
    )
    output = "+output_jsonl_fpath=runs/out.jsonl"
    done = gymq("ng", "e2e-collect-rollouts", CONFIG, datasets, "+split=train", output, "+num_repeats=2")
    assert done.status == 0, done.err
    results = [json.loads(line) for line in (here / "runs" / "out.jsonl").read_text().splitlines()]
    keys = sorted((result["_ng_task_index"], result["_ng_rollout_index"]) for result in results)
    assert keys == [*((task, repeat) for task in (0, 1) for repeat in range(4)), (2, 0), (2, 1)]
    collated = (here / "runs" / "preprocessed_datasets" / "train.jsonl").read_text().splitlines()
    assert len(collated) == 5
    assert json.loads(collated[-1])["responses_create_params"]["input"][-1]["content"] == "A or B? B"
    lacking = gymq("ng", "e2e-collect-rollouts", CONFIG, "+split=benchmark", output)
    assert lacking.err == "gymq: split: no agent of the configuration has a data set of the type benchmark\n"


@pytest.mark.nightly
def test_rows_go_to_a_head_server_elsewhere(
    rows: Path, gymq: Command, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, elsewhere = rows.parent, tmp_path_factory.mktemp("elsewhere")
    environment = {name: value for name, value in os.environ.items() if name != "GYMQ_NATS"}
    port = free_port("127.0.0.1")
    head = ["+head_server.host=127.0.0.1", f"+head_server.port={port}"]
    files = ["+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl"]
    command = ["ng", "collect-rollouts", *head, *files]
    away = gymq(*command, "+agent_name=mcqa_simple_agent")
    assert away.status == 2
    assert away.err.startswith(f"gymq: the head server http://127.0.0.1:{port} cannot be asked: ")
    with (elsewhere / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "ng_run", CONFIG, *head], cwd=elsewhere, env=environment, stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert server.stdout is not None
        assert f"http://127.0.0.1:{port}".encode() in server.stdout.readline()
        done = gymq(*command, "+agent_name=mcqa_simple_agent", "+num_repeats=3", "+num_samples_in_parallel=2")
        assert done.status == 0, done.err
        lines = (here / "out.jsonl").read_text().splitlines()
        assert len(lines) == 6
        (here / "out.jsonl").write_text("".join(f"{line}\n" for line in lines[:4]))
        resume = ["+agent_name=mcqa_simple_agent", "+num_repeats=3", "+resume_from_cache=true"]
        again = gymq(*command, *resume, "+responses_create_params={temperature: 0.5}")
        assert again.status == 0, again.err
        unknown = gymq(*command, "+agent_name=other_agent")
        (here / "bad.jsonl").write_text(json.dumps(ROW) + '\n{"responses_create_params": {"input": 3}}\n')
        bad = ["+input_jsonl_fpath=bad.jsonl", "+output_jsonl_fpath=bad_out.jsonl", "+agent_name=mcqa_simple_agent"]
        failed = gymq("ng", "collect-rollouts", *head, *bad)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=600)
    results = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    keys = {(result["_ng_task_index"], result["_ng_rollout_index"]) for result in results}
    assert keys == {(task, repeat) for task in (0, 1) for repeat in range(3)}
    assert [result["responses_create_params"].get("temperature") for result in results] == [None] * 4 + [0.5] * 2
    assert len((here / "out_reward_profiling.jsonl").read_text().splitlines()) == 2
    assert (failed.status, len((here / "bad_out.jsonl").read_text().splitlines())) == (3, 1)
    assert "gymq: failed: 422: " in failed.err
    assert "1 rollout failed; the same command with +resume_from_cache=true tries again" in failed.err
    assert f"gymq: http://127.0.0.1:{port} lists no agent other_agent; there are: mcqa_simple_agent" in unknown.err


def test_an_output_with_a_torn_line_is_resumed_with_a_head_server(here: Path, rows: Path, gymq: Command) -> None:
    class Agent(BaseHTTPRequestHandler):
        def answer(self, content: object) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def do_GET(self) -> None:
            url = f"http://{self.headers['Host']}"
            self.answer([{"process_name": "asker", "server_type": "responses_api_agents", "url": url}])

        def do_POST(self) -> None:
            row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(row | {"response": {"output": []}, "reward": 1.0})

    finished = json.dumps(
        ROW | {"_ng_task_index": 0, "_ng_rollout_index": 0, "response": {"output": []}, "reward": 0.0}
    )
    (here / "out.jsonl").write_text(f"{finished}\n\n{finished[:20]}")
    with HTTPServer(("127.0.0.1", 0), Agent) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        head = ["+head_server.host=127.0.0.1", f"+head_server.port={server.server_port}", "+agent_name=asker"]
        files = [f"+input_jsonl_fpath={rows}", "+output_jsonl_fpath=out.jsonl", "+resume_from_cache=true"]
        resumed = gymq("ng", "collect-rollouts", *head, *files)
        server.shutdown()
        serving.join()
    assert resumed.status == 0, resumed.err
    lines = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines() if line]
    assert [(line["_ng_task_index"], line["reward"]) for line in lines] == [(0, 0.0), (1, 1.0)]


def test_a_head_server_that_repeats_the_key_does_not_make_it_seen(here: Path, rows: Path, gymq: Command) -> None:
    class Repeats(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.end_headers()
            self.wfile.write(f"no such key: {self.headers['Authorization']}".encode())

    with HTTPServer(("127.0.0.1", 0), Repeats) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        head = ["+head_server.host=127.0.0.1", f"+head_server.port={server.server_port}", "+bridge.api_key=open-sesame"]
        refused = gymq("ng", "collect-rollouts", *head, f"+input_jsonl_fpath={rows}", "+output_jsonl_fpath=out.jsonl")
        server.shutdown()
        serving.join()
    assert "status 401: no such key: Bearer ***" in refused.err


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


@pytest.mark.nightly
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
        server.communicate(timeout=600)
    assert len((here / "out.jsonl").read_text().splitlines()) == 2
    assert sys.executable in (programs / "ng_run").read_text()
