"""A cancelled run stops: nothing new begins, nothing is left waiting, and each rollout ends as cancelled."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gymq.bus import Bus, BusError
from gymq.bus.queue.cancel import Cancellations
from gymq.bus.queue.client import QueueClient
from gymq.protocol import subjects
from gymq.protocol.messages import Failure, FailureClass, Outcome, VerifiedRollout
from gymq.runs.collection.collection import Collection
from tests.support.waiting import DEADLINE_S, until

from .proxy import Proxy
from .rows import row
from .running_cluster import RunningCluster, environment, running
from .scenario import agent_spec


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("cancel")
    workers = [environment("chain", "chain.py:Restarting", folder), agent_spec("solver", "chain", max_concurrency=40)]
    async with running(folder, workers) as cluster:
        yield cluster


async def queued(cluster: RunningCluster, run: str) -> int:
    return sum((await cluster.js.count_by_subject("TASKS", subjects.TASK.of(run))).values())


def ends(outcomes: list[Outcome]) -> Counter[str]:
    """How many outcomes are rollouts, and how many failures of which class."""
    return Counter(
        "rollout" if isinstance(outcome, VerifiedRollout) else str(outcome.failure_class) for outcome in outcomes
    )


async def begin(
    cluster: RunningCluster, name: str, rows: list[dict[str, Any]], calls: int
) -> tuple[Collection, asyncio.Task[Any]]:
    """A collection that runs, after the model was asked so often."""
    before = len(cluster.model_calls())
    collection = cluster.collection(name, rows)
    collecting = asyncio.create_task(collection.run())
    await cluster.until_called(before + calls)
    return collection, collecting


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_new_begins_in_a_cancelled_run_and_all_of_it_ends(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1] * 50, latencies_s=[0.3]) for number in range(100)]
    collection, collecting = await begin(cluster, "stop", rows, 80)
    run = collection.progress.run
    command = ["-c", "from gymq.cli import main; main()", "cancel", f"--run={run}", f"--nats={cluster.url}"]
    cancelling = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    said = (await cancelling.communicate())[0].decode()
    assert cancelling.returncode == 0
    assert f"run {run} is cancelled" in said
    await asyncio.wait_for(collecting, DEADLINE_S)
    await until(lambda: cluster.model_calls_running() == 0)
    calls, tools = len(cluster.model_calls()), len(cluster.tool_calls())
    await asyncio.sleep(1.0)  # as long as three model calls take
    assert (len(cluster.model_calls()), len(cluster.tool_calls())) == (calls, tools)
    assert calls < 100 * 50 / 2
    assert await queued(cluster, run) == 0
    assert ends(await cluster.outcomes(run)) == {"cancelled": 100}


@pytest.mark.asyncio(loop_scope="module")
async def test_calls_that_would_take_an_hour_are_stopped(cluster: RunningCluster) -> None:
    rows = [row("solver", "model", latencies_s=[3600.0])] * 5
    rows += [row("solver", "tool", values=[1], tool_s=[3600.0])] * 5
    tools_before = len(cluster.tool_calls())
    collection, collecting = await begin(cluster, "hour", rows, 10)
    await until(lambda: len(cluster.tool_calls()) >= tools_before + 5)
    await asyncio.sleep(0.5)  # until the callers know who has their calls
    await QueueClient(cluster.bus).cancel(collection.progress.run)
    await asyncio.wait_for(collecting, DEADLINE_S)
    await until(lambda: cluster.model_calls_running() == 0)
    await until(lambda: sum(line.endswith("stopped") for line in cluster.tool_calls()[tools_before:]) == 5)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_collection_ends_although_outcomes_cannot_be_read(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, collecting = await begin(cluster, "away", [row("solver", "model", latencies_s=[3600.0])] * 2, 2)

    async def away(*_: Any, **__: Any) -> AsyncIterator[Any]:
        raise BusError("no answer")
        yield

    monkeypatch.setattr(collection._queue.outcomes, "read", away)
    await QueueClient(cluster.bus).cancel(collection.progress.run)
    await asyncio.wait_for(collecting, DEADLINE_S)


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_cancelled_task_stops(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1] * 5, latencies_s=[0.5]) for number in range(10)]
    collection, collecting = await begin(cluster, "task", rows, 12)
    await QueueClient(cluster.bus).cancel(collection.progress.run, 3)
    await asyncio.wait_for(collecting, DEADLINE_S)
    outcomes = await cluster.outcomes(collection.progress.run)
    assert isinstance(outcomes[3], Failure)
    assert outcomes[3].failure_class is FailureClass.CANCELLED
    assert ends(outcomes) == {"rollout": 9, "cancelled": 1}


@pytest.mark.asyncio(loop_scope="module")
async def test_other_runs_continue(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1] * 5, latencies_s=[0.5]) for number in range(10)]
    stopped, stopping = await begin(cluster, "stopped", rows, 10)
    other, collecting = await begin(cluster, "other", rows, 10)
    await QueueClient(cluster.bus).cancel(stopped.progress.run)
    await asyncio.wait_for(asyncio.gather(stopping, collecting), DEADLINE_S)
    assert ends(await cluster.outcomes(other.progress.run)) == {"rollout": 10}
    assert ends(await cluster.outcomes(stopped.progress.run)) == {"cancelled": 10}


async def test_who_was_away_when_a_run_was_cancelled_hears_of_it_on_coming_back(
    shared_url: str, bus: Bus, run: str
) -> None:
    async with Proxy(shared_url) as proxy:
        away = await Bus.connect(proxy.url, role="test", name="away")
        heard: asyncio.Queue[tuple[str, int | None]] = asyncio.Queue()
        cancellations = Cancellations(away, lambda run, task: heard.put_nowait((run, task)))
        await cancellations.start()
        while not heard.empty():
            heard.get_nowait()
        proxy.cut()
        await until(lambda: not away.is_connected)
        await QueueClient(bus).cancel(run)
        await QueueClient(bus).cancel(f"{run}-other", 3)
        proxy.mend()
        async with asyncio.timeout(DEADLINE_S):
            found = {await heard.get(), await heard.get()}
        assert found == {(run, None), (f"{run}-other", 3)}
        assert (run, 17) in cancellations
        assert (f"{run}-other", 3) in cancellations
        assert (f"{run}-other", 4) not in cancellations
        await away.close()
