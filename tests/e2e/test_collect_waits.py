"""What a collection shows of agents that do not answer: some are gone, others only busy."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from gymq.bus import Bus, discovery
from gymq.bus.discovery import is_served
from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection import waits
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from tests.support.waiting import until

from .running_cluster import WORKERS, row, small_cluster

NUM_ROWS = 3


async def test_only_agents_that_are_gone_are_called_unserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    async def noted(bus: Bus, name: str, kind: str) -> bool:
        asked.append(await is_served(bus, name, kind))
        return asked[-1]

    monkeypatch.setattr(discovery, "is_served", noted)
    monkeypatch.setattr(waits, "UNSERVED_S", 0.02)
    monkeypatch.setattr(waits, "WATCH_EVERY_S", 0.01)
    awaited = str(tmp_path / "go")
    rows = tmp_path / "rows.jsonl"
    contents = [row(str(number), script={"model_waits_for": awaited}) for number in range(NUM_ROWS)]
    rows.write_text("".join(json.dumps(content) + "\n" for content in contents))
    async with small_cluster(tmp_path, WORKERS / "grader.py") as cluster:
        materialise = MaterialiseOptions(agent_name="agent")
        collection = Collection(cluster.bus, RunPlan(CollectOptions(rows, tmp_path / "out.jsonl", materialise)))
        collecting = asyncio.create_task(collection.run())
        await until(lambda: collection.progress.in_flight == NUM_ROWS)
        cluster.kill("agents", signal.SIGSTOP)
        await until(lambda: len(asked) > 6)
        assert all(asked)
        assert collection.progress.waits == {}
        cluster.kill("agents", signal.SIGCONT)
        await cluster.child("agents").stop()
        await until(lambda: collection.progress.waits)
        assert collection.progress.waits == {"no worker serves agent": NUM_ROWS}
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
