"""A judge that is down costs a verdict and not a response: once it is up, stored responses are judged."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

POLICY = """
from pathlib import Path

import gymq
from gymq.testing import reply

CALLS = Path(__file__).with_name("calls")


class Policy(gymq.Model):
    async def respond(self, request):
        with CALLS.open("a") as file:
            file.write(request.rollout + "\\n")
        return reply("About " + request.rollout.rpartition("/")[2] + " hours.")
"""

JUDGE = """
from pathlib import Path

import gymq
from gymq.testing import reply

UP = Path(__file__).with_name("up")


class Judge(gymq.Model):
    async def respond(self, request):
        if not UP.exists():
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "the judge's engine is out of memory")
        text = request.params["input"][-1]["content"]
        return reply("[[A=B]]" if "About 1 hours." in text else "[[A!=B]]")
"""


class Folder:
    """A folder with a configuration, where a cluster runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "policy.py").write_text(POLICY)
        (path / "judge.py").write_text(JUDGE)
        judge = {"type": "responses_api_models", "name": "judge_model"}
        policy = {"type": "responses_api_models", "name": "policy_model"}
        judged = {"judge_model_server": judge, "entrypoint": "worker.py", "domain": "knowledge"}
        agent = {
            "entrypoint": "worker.py",
            "resources_server": {"type": "resources_servers", "name": "judged"},
            "model_server": policy,
        }
        config = {
            "judged": {"resources_servers": {"equivalence_llm_judge": judged}},
            "judged_agent": {"responses_api_agents": {"simple_agent": agent}},
            "policy_model": {"responses_api_models": {str(path / "policy.py"): {"entrypoint": "x"}}},
            "judge_model": {"responses_api_models": {str(path / "judge.py"): {"entrypoint": "x"}}},
        }
        (path / "config.yaml").write_text(json.dumps(config))
        row = {"responses_create_params": {"input": "How long does it take?"}, "expected_answer": "an hour"}
        (path / "rows.jsonl").write_text(json.dumps(row | {"agent_ref": {"name": "judged_agent"}}) + "\n")

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from gymq.cli import main; main()", *arguments],
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, *arguments: str) -> tuple[int, str]:
        process = self.popen(*arguments)
        printed, _ = process.communicate(timeout=600)
        return process.returncode, printed

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self) -> list[str]:
        return (self.path / "calls").read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    cluster = made.popen("up", "-c", "config.yaml")
    try:
        assert cluster.stdout is not None
        assert "workers in" in cluster.stdout.readline()
        yield made
    finally:
        cluster.send_signal(signal.SIGTERM)
        cluster.communicate(timeout=600)


@pytest.mark.nightly
def test_a_response_whose_judge_was_down_is_kept_and_judged_later(folder):
    status, printed = folder.call(
        "collect", "-c", "config.yaml", "--rows", "rows.jsonl", "-o", "rollouts.jsonl", "--num-repeats", "2"
    )
    assert status == 3, printed
    assert folder.lines("rollouts.jsonl") == []
    failures = folder.lines("rollouts_failures.jsonl")
    assert {one["_ng_failure_class"] for one in failures} == {"judge_failed"}
    assert all("the judge's engine is out of memory" in one["_ng_failure_message"] for one in failures)
    assert not any("reward" in one for one in failures)
    asked = folder.calls()
    assert len(asked) == 2  # the responses are paid for once, however often the verdict was asked for

    score = ("score", "-c", "config.yaml", "--rollouts", "rollouts_failures.jsonl", "-o", "scored.jsonl")
    status, printed = folder.call(*score)
    assert status == 3, printed  # still down
    assert folder.lines("scored.jsonl") == []
    assert len(folder.lines("scored_failures.jsonl")) == 2

    (folder.path / "up").touch()
    status, printed = folder.call(*score, "--overwrite")
    assert status == 0, printed
    rewards = {one["_ng_rollout_index"]: one["reward"] for one in folder.lines("scored.jsonl")}
    assert rewards == {0: 0.0, 1: 1.0}
    assert folder.lines("scored_failures.jsonl") == []
    assert folder.calls() == asked
