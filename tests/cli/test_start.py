"""What commands load when they start."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from gymq.cli import make_app
from gymq.errors import UsageError

try:
    make_app(sys.argv[1])(sys.argv[1:])
except UsageError as error:
    print(error)
print(sorted({"omegaconf", "pebble", "pydantic"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("words", ["status", "rollouts", "profile --run r", "cancel --run r"])
def test_what_reads_and_steers_runs_loads_neither_configurations_nor_workers(words: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *words.split()], cwd=tmp_path, capture_output=True, text=True)
    answer, loaded = done.stdout.splitlines()
    assert "in this folder" in answer
    assert loaded == "[]"
