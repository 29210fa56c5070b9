"""NeMo Gym's own client, installed from the package index in an environment of its own, collects through our bridge."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compatibility import record
from tests.support.ports import free_port

from .nemo_gym_package import CURRENT, installed

ROWS = [
    {
        "responses_create_params": {
            "input": f"{number}: A or B?",
            "metadata": {"simulated_solution": '[[{"text": "\\\\boxed{B}"}]]', "simulated_mistake": "[[]]"},
        },
        "options": [{"A": "x"}, {"B": "y"}],
        "expected_answer": "B" if number % 2 else "A",
        "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
    }
    for number in range(6)
]
CONFIG = """
config_paths:
  - workers/resources/mcqa/config.yaml
  - workers/models/simulated_model/config.yaml
policy_model: {{responses_api_models: {{simulated_model: {{skill: 1.0}}}}}}
bridge: {{port: {port}, on_untrainable: allow}}
"""
PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of NeMo Gym's programs."""
    return installed(CURRENT)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a bridge in front of a cluster in an empty folder."""
    port = free_port("127.0.0.1")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.yaml").write_text(CONFIG.format(port=port))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    command = [sys.executable, "-c", "from gymq.cli import main; main()", "up", "--config", "config.yaml"]
    cluster = subprocess.Popen(command, cwd=tmp_path / "ours", stdout=subprocess.PIPE, text=True)
    try:
        assert cluster.stdout is not None
        assert f":{port}" in cluster.stdout.readline()
        yield port
    finally:
        cluster.send_signal(signal.SIGTERM)
        cluster.communicate(timeout=600)


def theirs(programs: Path, folder: Path, name: str, *settings: str) -> str:
    """What one of NeMo Gym's programs prints; it has to succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_", "GYMQ_"))}
    done = subprocess.run(
        [programs / name, *settings],
        cwd=folder,
        env={**clean, "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.nightly
def test_their_client_collects_shows_and_profiles(programs: Path, port: int, tmp_path: Path) -> None:
    head = f"+head_server={{host: 127.0.0.1, port: {port}}}"
    files = ["+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl"]
    theirs(programs, tmp_path, "ng_collect_rollouts", head, *files, "+num_repeats=2", "+upload_rollouts_to_wandb=false")
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted((one["_ng_task_index"], one["_ng_rollout_index"]) for one in results) == [
        (task, rollout) for task in range(len(ROWS)) for rollout in range(2)
    ]
    assert all(one["reward"] == float(one["_ng_task_index"] % 2) for one in results)

    status = theirs(programs, tmp_path, "ng_status", head)
    assert "mcqa_simple_agent" in status

    profile = ["+materialized_inputs_jsonl_fpath=out_materialized_inputs.jsonl", "+rollouts_jsonl_fpath=out.jsonl"]
    theirs(programs, tmp_path, "ng_reward_profile", *profile)
    lines = (tmp_path / "out_reward_profiling.jsonl").read_text().splitlines()
    assert [json.loads(line)["mean/reward"] for line in lines] == [0.0, 1.0] * 3
    result = "`ng_collect_rollouts`, `ng_status` and `ng_reward_profile` work unchanged with the bridge"
    record("NeMo Gym: its own client", CURRENT, "its package on Python 3.13", result)
