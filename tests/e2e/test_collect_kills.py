"""The collector, killed and started again."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gymq.data.run_files import RunFiles
from tests.support.waiting import until

from .running_cluster import RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUM_ROWS, NUM_REPEATS = 30, 2
EACH_ONCE = [(task, rollout) for task in range(NUM_ROWS) for rollout in range(NUM_REPEATS)]


class Collector:
    """`gymq collect` in a process of its own."""

    def __init__(self, cluster: RunningCluster, folder: Path, *, last_waits_for: Path | None = None) -> None:
        """
        Args:
            last_waits_for: the model answers the last row once this file is there; None: at once.
        """
        self.files = RunFiles(folder / "rollouts.jsonl")
        self._url = cluster.url
        self._input = folder / "rows.jsonl"
        scripts: list[dict[str, Any]] = [{"model_s": number % 7 / 10} for number in range(NUM_ROWS)]
        if last_waits_for is not None:
            scripts[-1] = {"model_waits_for": str(last_waits_for)}
        rows = [row(f"{folder} {number}", script=script) for number, script in enumerate(scripts)]
        self._input.write_text("".join(json.dumps(content) + "\n" for content in rows))

    async def start(self) -> asyncio.subprocess.Process:
        arguments = ["collect", "--rows", str(self._input), "-o", str(self.files.output), "--agent", "asker", "--json"]
        arguments += ["--num-repeats", str(NUM_REPEATS), "--concurrency", "8"]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from gymq.cli import main; main()",
            *arguments,
            env={**os.environ, "GYMQ_NATS": self._url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def finish(self) -> dict[str, Any]:
        """Run it to its end; what it prints."""
        process = await self.start()
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        summary: dict[str, Any] = json.loads(out)
        return summary

    def num_lines(self) -> int:
        return self.files.output.read_bytes().count(b"\n") if self.files.output.exists() else 0

    def keys(self) -> list[tuple[int, int]]:
        lines = [json.loads(line) for line in self.files.output.read_text().splitlines()]
        return sorted((line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines)


@pytest.mark.nightly
async def test_a_collector_that_is_killed_again_and_again_loses_nothing_and_asks_nothing_twice(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    collector = Collector(cluster, tmp_path)
    killed_at = []
    for lines in (0, 15, 40):
        process = await collector.start()
        await until(lambda: collector.files.manifest.exists())
        await until(lambda: collector.num_lines() >= lines)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        await process.wait()
        killed_at.append(collector.num_lines())
    summary = await collector.finish()
    assert killed_at[-1] < len(EACH_ONCE), "it was killed too late to mean anything"
    assert (summary["done"], summary["failed"]) == (len(EACH_ONCE), 0)
    assert collector.keys() == EACH_ONCE
    assert set(cluster.calls(summary["run"]).values()) == {1}
    assert len(await cluster.stored(summary["run"])) == len(EACH_ONCE)


@pytest.mark.nightly
async def test_everything_may_be_killed_during_one_collection(cluster: RunningCluster, tmp_path: Path) -> None:
    collector = Collector(cluster, tmp_path)
    process = await collector.start()
    await until(lambda: collector.num_lines() >= 5)
    cluster.kill("models")
    await until(lambda: collector.num_lines() >= 15)
    cluster.kill("agents")
    await until(lambda: collector.num_lines() >= 25)
    await cluster.kill_server()
    await until(lambda: collector.num_lines() >= 35)
    cluster.kill("resources")
    process.send_signal(signal.SIGKILL)
    await process.wait()
    summary = await collector.finish()
    assert (summary["done"], summary["failed"]) == (len(EACH_ONCE), 0)
    assert collector.keys() == EACH_ONCE
    assert {json.loads(line)["reward"] for line in collector.files.output.read_text().splitlines()} == {1.0}


async def test_an_interrupted_collection_says_what_is_done_and_how_it_is_resumed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    interrupted = tmp_path / "interrupted"
    collector = Collector(cluster, tmp_path, last_waits_for=interrupted)
    process = await collector.start()
    await until(lambda: collector.num_lines() >= 1)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err.decode()
    said = re.search(
        r"gymq: run (\S+) was interrupted: (\d+) of 60 done, \d+ in flight; the same command resumes it", err.decode()
    )
    assert said
    assert int(said[2]) == collector.num_lines()
    interrupted.touch()
    summary = await collector.finish()
    assert (summary["run"], summary["done"]) == (said[1], len(EACH_ONCE))
