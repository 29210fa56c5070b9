"""A cancelled run stops: nothing new begins, nothing is left waiting, and each rollout ends as cancelled."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gymq import subjects
from gymq.bus import Bus
from gymq.cancel import Cancellations, cancel
from gymq.collect import Collection
from gymq.messages import Failure, FailureClass, Outcome, Rollout

from .lab import Lab, environment, running
from .proxy import Proxy
from .rows import row
from .scenario import agent_spec

SOON_S = 3.0  # a second is the promise; this machine is busy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    folder = tmp_path_factory.mktemp("cancel")
    workers = [environment("chain", "chain.py:Restarting", folder), agent_spec("solver", "chain", max_concurrency=40)]
    async with running(folder, workers) as lab:
        yield lab


async def queued(lab: Lab, run: str) -> int:
    return sum((await lab.js.count_by_subject("TASKS", subjects.tasks_of_run(run))).values())


def ends(outcomes: list[Outcome]) -> Counter[str]:
    """How many outcomes are rollouts, and how many failures of which class."""
    return Counter("rollout" if isinstance(outcome, Rollout) else str(outcome.failure_class) for outcome in outcomes)


async def begin(lab: Lab, name: str, rows: list[dict[str, Any]], calls: int) -> tuple[Collection, asyncio.Task[Any]]:
    """A collection that runs, after the model was asked so often."""
    before = len(lab.model_calls())
    collection = lab.collection(name, rows)
    collecting = asyncio.create_task(collection.run())
    await lab.until_called(before + calls)
    return collection, collecting


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_new_begins_in_a_cancelled_run_and_all_of_it_ends(lab: Lab) -> None:
    rows = [row("solver", str(number), values=[1] * 50, latencies_s=[0.3]) for number in range(100)]
    collection, collecting = await begin(lab, "stop", rows, 80)
    run = collection.progress.run
    command = ["-c", "from gymq.cli import main; main()", "cancel", f"--run={run}", f"--nats={lab.cluster.url}"]
    cancelling = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    said = (await cancelling.communicate())[0].decode()
    assert cancelling.returncode == 0
    assert f"run {run} is cancelled" in said
    await asyncio.sleep(SOON_S)
    calls, tools = len(lab.model_calls()), len(lab.tool_calls())
    assert lab.model_calls_running() == 0
    await asyncio.sleep(SOON_S)
    assert (len(lab.model_calls()), len(lab.tool_calls())) == (calls, tools)
    await asyncio.wait_for(collecting, 60)
    assert await queued(lab, run) == 0
    assert ends(await lab.outcomes(run)) == {"cancelled": 100}


@pytest.mark.asyncio(loop_scope="module")
async def test_calls_that_would_take_an_hour_are_stopped(lab: Lab) -> None:
    rows = [row("solver", "model", latencies_s=[3600.0])] * 5
    rows += [row("solver", "tool", values=[1], tool_s=[3600.0])] * 5
    tools_before = len(lab.tool_calls())
    collection, collecting = await begin(lab, "hour", rows, 10)
    while len(lab.tool_calls()) < tools_before + 5:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)  # until the callers know who has their calls
    await cancel(lab.bus, collection.progress.run)
    await asyncio.sleep(SOON_S)
    assert lab.model_calls_running() == 0
    assert sum(line.endswith("stopped") for line in lab.tool_calls()[tools_before:]) == 5
    await asyncio.wait_for(collecting, 60)


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_cancelled_task_stops(lab: Lab) -> None:
    rows = [row("solver", str(number), values=[1] * 5, latencies_s=[0.5]) for number in range(10)]
    collection, collecting = await begin(lab, "task", rows, 12)
    await cancel(lab.bus, collection.progress.run, 3)
    await asyncio.wait_for(collecting, 120)
    outcomes = await lab.outcomes(collection.progress.run)
    assert isinstance(outcomes[3], Failure)
    assert outcomes[3].failure_class is FailureClass.CANCELLED
    assert ends(outcomes) == {"rollout": 9, "cancelled": 1}


@pytest.mark.asyncio(loop_scope="module")
async def test_other_runs_go_on(lab: Lab) -> None:
    rows = [row("solver", str(number), values=[1] * 5, latencies_s=[0.5]) for number in range(10)]
    stopped, stopping = await begin(lab, "stopped", rows, 10)
    other, collecting = await begin(lab, "other", rows, 10)
    await cancel(lab.bus, stopped.progress.run)
    await asyncio.wait_for(asyncio.gather(stopping, collecting), 120)
    assert ends(await lab.outcomes(other.progress.run)) == {"rollout": 10}
    assert ends(await lab.outcomes(stopped.progress.run)) == {"cancelled": 10}


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
        while away.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cancel(bus, run)
        await cancel(bus, f"{run}-other", 3)
        proxy.mend()
        async with asyncio.timeout(30):
            found = {await heard.get(), await heard.get()}
        assert found == {(run, None), (f"{run}-other", 3)}
        assert (run, 17) in cancellations
        assert (f"{run}-other", 3) in cancellations
        assert (f"{run}-other", 4) not in cancellations
        await away.close()
