"""What commands load when they start."""

import subprocess
import sys
from pathlib import Path

COMMANDS = ["status", "rollouts", "profile --run r", "cancel --run r"]
CODE = """
import sys
from gymq.cli import make_app
from gymq.errors import UsageError

for command in sys.argv[1:]:
    words = command.split()
    try:
        make_app(words[0])(words)
    except UsageError as error:
        print(error)
    print(command, sorted({"omegaconf", "pebble", "pydantic"} & sys.modules.keys()))
"""


def test_what_reads_and_steers_runs_loads_neither_configurations_nor_workers(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *COMMANDS], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert all("in this folder" in answer for answer in lines[::2])
    assert lines[1::2] == [f"{command} []" for command in COMMANDS]
