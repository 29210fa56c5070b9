"""Trajectories that gymq writes, checked by Harbor, whose format ATIF is, in a Python of its own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymq.ext.formats.atif import write_atif
from gymq.ext.rollout_files.files import rollout_lines
from gymq.testing import function_call, reply
from tests.support.compatibility import record

PYTHON = os.environ.get("GYMQ_HARBOR_PYTHON", "")
VERSION = "0.25.0"
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs GYMQ_HARBOR_PYTHON: make test-in NAME=harbor")

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}
CALL = {**function_call("add", {"a": 3}, "c1"), **TOKENS}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "7"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "so"}]}
USER = {"type": "message", "role": "user", "content": "Sure?"}
CASES = {
    "tools-and-tokens": reply(THOUGHT, "I add.", CALL, OUTPUT, "7", USER, "Yes."),
    "an-output-behind-a-message": reply(CALL, USER, OUTPUT, "7"),
    "an-output-without-its-call": reply({**OUTPUT, "call_id": "c9"}, "7"),
    "arguments-that-are-no-object": reply({**CALL, "arguments": "[1"}, OUTPUT, "7"),
    "nothing-said": reply(""),
}


def written(response: dict[str, Any], file: Path) -> Path:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 4?"}]
    ours = {"reward": 1.0, "task_index": 0}
    made = write_atif(session="r/0/0", agent="adder", version="0.1.0", prompt=prompt, response=response, ours=ours)
    file.write_text(json.dumps(made))
    return file


@pytest.mark.parametrize("name", CASES)
def test_harbor_finds_a_trajectory_valid(name: str, tmp_path: Path) -> None:
    file = written(CASES[name], tmp_path / "trajectory.json")
    command = [PYTHON, "-m", "harbor.utils.trajectory_validator", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    (line,) = rollout_lines(file)
    assert json.loads(line)["reward"] == 1.0
    if name == list(CASES)[-1]:
        record("ATIF: its validator", f"harbor {VERSION}", "its package on Python 3.13", f"{len(CASES)} kinds valid")
