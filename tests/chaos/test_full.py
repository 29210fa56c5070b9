"""A server whose disk limit is reached: the client gets an error; nothing accepted is lost or paid for twice."""

import random
from collections import Counter
from contextlib import suppress
from functools import partialmethod
from pathlib import Path

import msgspec
import pytest

from gymq.bus import Bus, BusError, streams
from gymq.bus.queue.client import QueueClient
from gymq.cluster.launch import Deployment
from gymq.protocol import subjects
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Task, VerifiedRollout

from .nats_nodes import nats_node
from .rows import row
from .running_cluster import WORKERS, running
from .scenario import agent_spec

PADDING = random.Random(1).randbytes(60_000).hex()  # 60 kB when compressed


async def test_a_full_server_refuses_and_continues_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueClient, "submit", partialmethod(QueueClient.submit, patience_s=5.0))
    plain = Instance("plain", "resources", str(WORKERS / "plain.py"))
    workers = [plain, agent_spec("solver", "plain")]
    rows = [row("solver", str(number), padding=PADDING) for number in range(150)]
    async with (
        nats_node(tmp_path, max_file="12MB") as node,
        running(tmp_path, workers, deployment=Deployment(node.url)) as cluster,
    ):
        earlier = cluster.collection("earlier", rows[:100])
        await earlier.run()
        with pytest.raises(BusError, match="resource"):
            await cluster.collection("later", rows).run()
        await streams.delete_run(cluster.js, earlier.progress.run)
        later = cluster.collection("later", rows)
        await later.run()
        outcomes = await cluster.outcomes(later.progress.run)
        calls = Counter(call for call in cluster.model_calls() if call.startswith(f"{later.progress.run}/"))
    assert [(outcome.task_index, outcome.rollout_index) for outcome in outcomes] == [(task, 0) for task in range(150)]
    assert all(isinstance(outcome, VerifiedRollout) and outcome.reward == 1.0 for outcome in outcomes)
    assert len(later.files.output.read_bytes().splitlines()) == 150
    assert set(calls.values()) == {1}
    assert len(calls) == 150


async def test_a_run_that_fills_the_disk_can_be_cancelled_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = partialmethod(QueueClient.mark_cancelled, patience_s=1.0)
    monkeypatch.setattr(QueueClient, "mark_cancelled", mark)
    async with (
        nats_node(tmp_path, max_file="1MB") as node,
        await Bus.connect(node.url, role="test", name="test") as bus,
    ):
        await streams.ensure(bus.js, [])
        queue = QueueClient(bus)
        await queue.open_run("full")
        body = msgspec.json.encode({"padding": PADDING[:10_000]})
        tasks = [
            Task(run="full", task_index=at, rollout_index=0, agent="a", row=body, timeout_s=60.0) for at in range(500)
        ]
        with suppress(BusError):
            for task in tasks:
                await queue.submit(task, patience_s=0.2)
        num_queued = await queue.num_queued("full")
        assert 10 < num_queued < 500
        assert await queue.cancel("full") == num_queued
        assert await queue.num_queued("full") == 0
        outcomes = [outcome async for _, outcome in queue.outcomes.read("full")]
        assert [getattr(outcome, "failure_class", "") for outcome in outcomes] == ["cancelled"] * num_queued
        assert await bus.js.newest(streams.RUNS, subjects.cancelled("full", None))
        await streams.delete_run(bus.js, "full")
        await QueueClient(bus).submit(tasks[0], patience_s=5.0)
