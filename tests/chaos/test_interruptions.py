"""An interruption that kills no process costs nothing: what was in flight is waited for, not done again."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymq.protocol.messages import Outcome, VerifiedRollout
from tests.support.waiting import DEADLINE_S, until

from .rows import row
from .running_cluster import RunningCluster, environment, running
from .scenario import agent_spec

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_ROWS = 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("interruptions")
    workers = [environment("chain", "chain.py:Restarting", folder), agent_spec("solver", "chain")]
    async with running(folder, workers, drain_s=1.0, ack_wait_s=8.0) as cluster:
        yield cluster


async def freeze(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def check(outcomes: list[Outcome], num_rows: int = NUM_ROWS) -> None:
    """All rewarded, at the first attempt."""
    assert [outcome.reward for outcome in outcomes if isinstance(outcome, VerifiedRollout)] == [1.0] * num_rows
    assert {outcome.attempt for outcome in outcomes} == {0}


async def test_a_frozen_agent_repeats_no_call(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1, 2], latencies_s=[1.5]) for number in range(NUM_ROWS)]
    before = len(cluster.model_calls())
    collecting = asyncio.create_task(cluster.collect("agent", rows))
    await cluster.until_called(before + NUM_ROWS)
    await freeze(cluster.pid("agents"), 5.0)
    check(await asyncio.wait_for(collecting, DEADLINE_S))
    calls = Counter(cluster.model_calls()[before:])
    assert set(calls.values()) == {3}  # turns


async def test_a_tool_call_in_a_frozen_worker_runs_once_and_the_rollout_continues(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1], tool_s=[1.0]) for number in range(NUM_ROWS)]
    before, tools_before = len(cluster.model_calls()), len(cluster.tool_calls())
    collecting = asyncio.create_task(cluster.collect("resources", rows))
    await cluster.until_called(before + NUM_ROWS)
    await asyncio.sleep(0.5)
    await freeze(cluster.pid("resources"), 5.0)
    check(await asyncio.wait_for(collecting, DEADLINE_S))
    assert len(cluster.tool_calls()) == tools_before + NUM_ROWS
    assert len(cluster.model_calls()) == before + 2 * NUM_ROWS


async def test_a_tool_call_of_an_agent_that_is_stopped_is_waited_for_by_the_next(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), values=[1], tool_s=[5.0]) for number in range(NUM_ROWS)]
    before, tools_before = len(cluster.model_calls()), len(cluster.tool_calls())
    collecting = asyncio.create_task(cluster.collect("drain", rows))
    await until(lambda: len(cluster.tool_calls()) >= tools_before + NUM_ROWS)
    os.kill(cluster.pid("agents"), signal.SIGTERM)
    check(await asyncio.wait_for(collecting, DEADLINE_S))
    assert len(cluster.tool_calls()) == tools_before + NUM_ROWS
    assert len(cluster.model_calls()) == before + 2 * NUM_ROWS


async def test_sessions_outlive_a_restart_of_the_server(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row("solver", str(number), values=[1] * 6, latencies_s=[0.5]) for number in range(NUM_ROWS)]
    before, tools_before = len(cluster.model_calls()), len(cluster.tool_calls())
    collecting = asyncio.create_task(cluster.collect("server", rows))
    await cluster.until_called(before + 2 * NUM_ROWS)
    os.kill(cluster.pid("nats"), signal.SIGKILL)
    check(await asyncio.wait_for(collecting, DEADLINE_S))
    assert len(cluster.tool_calls()) == tools_before + 6 * NUM_ROWS
    assert "restarting it" in caplog.text
    assert "messages may be missing" not in caplog.text
    # What was on its way through the server may be asked once more.
    assert len(cluster.model_calls()) <= before + 7 * NUM_ROWS + NUM_ROWS
