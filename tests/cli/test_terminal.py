"""A collection as a person sees it: on a terminal of 80 and of 120 columns, and through a pipe."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from .conftest import Finished, entry

LONG_S = 120


def on_terminal(columns: int, *command: object) -> tuple[int, str]:
    """Run a command of gymq on a pseudo terminal; return its exit status and everything that was drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment["TERM"] = "xterm-256color"
    with subprocess.Popen(
        [*entry(), *map(str, command)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the last process that had the terminal has ended
                break
            if not piece:
                break
            drawn += piece
        status = process.wait(LONG_S)
    os.close(ours)
    return status, drawn.decode()


def collection(cluster: Finished, output: Path) -> list[object]:
    return ["collect", "-c", cluster.config, "-i", "rows.jsonl", "-o", output, "--num-repeats", 4]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_how_far_a_collection_is(cluster: Finished, tmp_path: Path, columns: int):
    status, drawn = on_terminal(columns, *collection(cluster, tmp_path / "rollouts.jsonl"))
    assert status == 3
    assert "Traceback" not in drawn
    assert "12/12" in drawn
    assert "rollouts/s" in drawn
    assert "4 failed (judge_failed 4)" in drawn
    before_the_end = drawn[: drawn.index("environment (agent)")]
    assert "\x1b[?25l" in before_the_end, "nothing was drawn in place"


def test_names_are_whole_on_a_narrow_terminal(cluster: Finished, tmp_path: Path):
    _, drawn = on_terminal(40, *collection(cluster, tmp_path / "rollouts.jsonl"))
    assert "\nletters_agent\r\n  mean reward " in drawn


def test_a_run_ends_with_its_failures_their_reasons_and_how_to_look_at_one(cluster: Finished, tmp_path: Path):
    command = [*entry(), *map(str, collection(cluster, tmp_path / "rollouts.jsonl"))]
    first, again = (subprocess.run(command, capture_output=True, text=True, timeout=LONG_S) for _ in range(2))
    for ended in (first, again):
        assert ended.returncode == 3
        assert "4 of 12 rollouts failed" in ended.stderr
        assert "4 judge_failed, for example: the judge is asleep" in ended.stderr
        assert "--task 2 --rollout" in ended.stderr
        header = next(line for line in ended.stdout.splitlines() if "environment (agent)" in line)
        assert header.split()[2:4] == ["mean", "reward"]
        assert "…" not in ended.stdout
