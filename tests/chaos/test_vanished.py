"""What the server keeps is gone during a run: the run continues, or ends with a sentence and can be resumed."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gymq.bus import Bus, BusError, streams
from gymq.cluster.launch import Deployment
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Outcome, VerifiedRollout
from tests.support.waiting import DEADLINE_S, until, until_answer

from .nats_nodes import nats_node, until_ready
from .rows import row
from .running_cluster import WORKERS, running
from .scenario import agent_spec

NUM_ROWS = 60
ROWS = [row("solver", str(number), latencies_s=[0.2]) for number in range(NUM_ROWS)]
PLAIN = [Instance("plain", "resources", str(WORKERS / "plain.py")), agent_spec("solver", "plain", max_concurrency=4)]


def check(outcomes: list[Outcome]) -> None:
    assert Counter(outcome.task_index for outcome in outcomes) == dict.fromkeys(range(NUM_ROWS), 1)
    assert all(isinstance(outcome, VerifiedRollout) and outcome.reward == 1.0 for outcome in outcomes)


async def test_a_server_that_comes_back_empty_ends_the_run_and_the_same_command_resumes_it(tmp_path: Path) -> None:
    async with (
        nats_node(tmp_path, max_file="1GB") as node,
        running(tmp_path, PLAIN, deployment=Deployment(node.url)) as cluster,
    ):
        first = cluster.collection("run", ROWS)
        collecting = asyncio.create_task(first.run())
        await until(lambda: first.files.output.exists() and first.files.output.read_bytes().count(b"\n") >= 8)
        node.kill()
        node.wipe()
        node.start()
        await until_ready(node.url)
        with pytest.raises(BusError, match=r"the stream \w+ was deleted .*; run the same command again to resume"):
            await asyncio.wait_for(collecting, DEADLINE_S)
        kept = first.files.output.read_bytes()
        await streams.ensure(cluster.js, ["solver"])  # as another cluster does that starts; the workers go on
        async with await Bus.connect(node.url, role="client", name="again") as bus:
            resumed = replace(cluster, bus=bus).collection("run", ROWS)
            await asyncio.wait_for(resumed.run(), DEADLINE_S)
        assert not resumed.warnings
        written = resumed.files.output.read_bytes()
        assert written.startswith(kept)
        assert written.count(b"\n") == NUM_ROWS


async def test_a_run_whose_queue_is_deleted_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, PLAIN) as cluster:
        collection = cluster.collection("run", ROWS)
        collecting = asyncio.create_task(collection.run())
        for number in range(3):
            await cluster.until_called(8 * (number + 1))
            (queue,) = await until_answer(lambda: streams.queues(cluster.js))
            await streams.remove_consumer(cluster.js, streams.TASKS, queue)
        progress = await asyncio.wait_for(collecting, DEADLINE_S)
        check(await cluster.outcomes(progress.run))
