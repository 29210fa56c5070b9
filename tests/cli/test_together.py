"""Several collections at once in one folder: one starts a cluster, the others join it, and all of them finish."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from gymq.data.run_files import RunFiles

from .conftest import POLICY, entry, row, write_workers

LONG_S = 600
FIRST_REPEATS, LATER_REPEATS = 2, 60

# The rollouts of the first run wait until the others have joined, and those take longer than its end.
SLOW = """\
        import asyncio
        from pathlib import Path

        if request.rollout.startswith("first"):
            while not Path("joined").exists():
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)
"""


@pytest.mark.nightly
def test_three_collections_at_once_finish_though_the_first_one_stops_the_cluster(tmp_path: Path) -> None:
    config = write_workers(tmp_path)
    start = "    async def respond(self, request):\n"
    (tmp_path / "policy.py").write_text(POLICY.replace(start, start + SLOW))
    (tmp_path / "rows.jsonl").write_text(json.dumps(row("first letter", "A")) + "\n")

    def collecting(name: str, repeats: int) -> subprocess.Popen[str]:
        command = ["collect", "-c", str(config), "--rows", "rows.jsonl", "-o", f"{name}.jsonl", "--concurrency", "1"]
        return subprocess.Popen(
            [*entry(), *command, "--num-repeats", str(repeats)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def num_rollouts(name: str) -> int:
        output = RunFiles(tmp_path / f"{name}.jsonl").output
        return output.read_bytes().count(b"\n") if output.exists() else 0

    give_up = time.monotonic() + LONG_S
    runs = {"first": collecting("first", FIRST_REPEATS)}
    while not (tmp_path / ".gymq" / "jetstream" / "server.lock").exists():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    runs |= {name: collecting(name, LATER_REPEATS) for name in ("second", "third")}
    while not (num_rollouts("second") and num_rollouts("third")):
        assert time.monotonic() < give_up
        assert all(one.poll() is None for one in runs.values())
        time.sleep(0.05)
    (tmp_path / "joined").touch()
    said = {name: one.communicate(timeout=LONG_S)[1] for name, one in runs.items()}
    assert {name: one.returncode for name, one in runs.items()} == dict.fromkeys(runs, 0), said
    assert [num_rollouts(name) for name in runs] == [FIRST_REPEATS, LATER_REPEATS, LATER_REPEATS]
    for name in ("second", "third"):
        assert "resuming with the workers of this command" in said[name]
        assert "Traceback" not in said[name]
