"""The example that trains a tiny policy, run as a user runs it: what is trained gets better."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` installs it")
pytest.importorskip("matplotlib", reason="matplotlib is not installed here; `make test-vllm` installs it")

pytestmark = pytest.mark.vllm

TRAIN = Path(__file__).parents[2] / "examples" / "train_tiny" / "train.py"
STEPS = 40


@pytest.mark.timeout(1500)
def test_the_reward_rises_on_tasks_that_were_trained_on_and_on_others(tmp_path: Path) -> None:
    output = tmp_path / "run"
    command = [sys.executable, str(TRAIN), "--steps", str(STEPS), "--prompts", "24", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((output / "result.json").read_text())
    rewards = result["rewards"]
    assert len(rewards) == STEPS
    assert statistics.fmean(rewards[-10:]) > statistics.fmean(rewards[:10]) + 0.1
    assert statistics.fmean(result["after"].values()) > statistics.fmean(result["before"].values())
    assert (output / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert f"engine on step-{STEPS}" in done.stdout


AT_NIGHT = pytest.mark.nightly


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "."], "has a finished training"),
        pytest.param(["--samples", "1"], "two samples", marks=AT_NIGHT),
        pytest.param(["--ahead", "-1"], "0 or more steps ahead", marks=AT_NIGHT),
        pytest.param(["--processes", "33"], "there are 1 to 32", marks=AT_NIGHT),
    ],
)
def test_a_command_line_that_does_not_fit_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "result.json").touch()
    command = [sys.executable, str(TRAIN), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
