"""Workers in cells: each process has all that a rollout needs, any of them may be killed, and outcomes are the same."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gymq.bus import Bus, credentials
from gymq.cluster import cells
from gymq.cluster.launch import Cluster
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Failure, FailureClass, Unresolved, VerifiedRollout
from tests.support.waiting import until

from .conftest import ACK_WAIT_S
from .running_cluster import WORKERS, RunningCluster, agent, model, row, small_cluster

pytestmark = pytest.mark.asyncio(loop_scope="session")

CELLS = ("cell-0", "cell-1")
URL = "http://127.0.0.1:9/v1"
VLLM = {
    "base_url": URL,
    "api_key": "-",
    "model": "any",
    "return_token_id_information": False,
    "uses_reasoning_parser": False,
}
JUDGE = {"genrm_model_server": {"type": "responses_api_models", "name": "judge"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("cells")
    workers = [
        model("policy", folder),
        Instance("grader", "resources", str(WORKERS / "grader.py")),
        Instance("adding", "resources", str(WORKERS / "adding.py")),
        Instance("apart", "resources", str(WORKERS / "adding.py"), {"num_workers": 2}),
        agent("asker", "grader"),
        agent("adder", "adding"),
        agent("caller", "apart"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: len(CELLS))
        patch.delenv(credentials.VARIABLE, raising=False)
        started = Cluster(workers, folder=folder, ack_wait_s=ACK_WAIT_S, drain_s=2.0, layout="cells")
        async with started as cluster:
            bus = await Bus.connect(cluster.url, role="test", name="test")
            yield RunningCluster(cluster, bus, folder)
            await bus.close()


async def check(cluster: RunningCluster, run: str, count: int) -> None:
    """Each rollout has one outcome, and it has the reward 1."""
    found = await cluster.outcomes(run, count)
    assert sorted(found) == [(task, 0) for task in range(count)]
    assert {outcome.reward for outcome in found.values() if isinstance(outcome, VerifiedRollout)} == {1.0}
    assert len(await cluster.stored(run)) == count


async def test_what_a_process_of_its_own_is_asked_for_has_one(cluster: RunningCluster) -> None:
    assert sorted(child.name for child in cluster.children) == ["apart-0", "apart-1", *CELLS, "services"]


async def test_a_rollout_is_made_in_a_cell(cluster: RunningCluster, run: str) -> None:
    tools = {"tools": ["add"] * 3}
    await cluster.submit(run, "adder", [row(str(number), expected=3, script=tools) for number in range(16)])
    await check(cluster, run, 16)
    assert set(cluster.calls(run).values()) == {4}
    assert {outcome.worker.partition("-")[0] for outcome in await cluster.stored(run)} == {cells.ROLE}


async def test_an_environment_outside_of_the_cells_is_called_all_the_same(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "caller", [row(str(n), expected=2, script={"tools": ["add"] * 2}) for n in range(8)])
    await check(cluster, run, 8)


async def test_rollouts_of_a_killed_cell_are_finished_by_another(cluster: RunningCluster, run: str) -> None:
    script = {"tools": ["add"] * 4, "model_s": 0.4}
    await cluster.submit(run, "adder", [row(str(number), expected=4, script=script) for number in range(8)])
    await cluster.until_called(run, 12)
    cluster.kill("cell-0")
    await check(cluster, run, 8)


@pytest.mark.parametrize(
    ("does", "kind", "failure_class", "message"),
    [
        pytest.param(
            *("loop", Unresolved, FailureClass.VERIFIER_FAILED, "verify blocked the event loop"),
            marks=pytest.mark.nightly,
        ),
        ("exit", Failure, FailureClass.REDELIVERED_TOO_OFTEN, "process died while it worked on this task"),
    ],
)
async def test_what_blocks_or_ends_its_cell_fails_alone(
    tmp_path: Path, run: str, does: str, kind: type[Failure | Unresolved], failure_class: FailureClass, message: str
) -> None:
    rows = [row(processes=str(tmp_path / "processes"), does=wanted) for wanted in ("", does, "", "")]
    async with small_cluster(tmp_path, WORKERS / "misbehaving.py", "cells", ACK_WAIT_S) as cluster:
        await cluster.submit(run, "agent", rows)
        outcomes = await cluster.outcomes(run, len(rows))
    failed = outcomes.pop((1, 0))
    assert isinstance(failed, kind)
    assert failed.failure_class is failure_class
    assert message in failed.message
    assert all(isinstance(outcome, VerifiedRollout) for outcome in outcomes.values())


async def test_a_cell_told_to_stop_finishes_what_is_in_flight(cluster: RunningCluster, run: str) -> None:
    await until(lambda: all(child.serves for child in cluster.children))
    restarts = cluster.child("cell-1").restarts
    await cluster.submit(run, "asker", [row(str(number), script={"model_s": 0.3}) for number in range(8)])
    await cluster.until_called(run, 8)
    cluster.kill("cell-1", signal.SIGTERM)
    await cluster.until_restarted("cell-1", restarts)
    await check(cluster, run, 8)
    assert set(cluster.calls(run).values()) == {1}


@pytest.mark.parametrize(
    ("kind", "implementation", "options", "shares"),
    [
        ("agents", "simple_agent", {}, True),
        ("agents", "simple_agent", {"num_workers": 2}, False),
        ("resources", "mcqa", {}, True),
        ("resources", "mcqa", {"isolated": True}, False),
        ("resources", "mcqa", {"pass_env": ["HOME"]}, False),
        ("resources", "code_gen", {}, False),  # runs what models write
        ("resources", "genrm_compare", JUDGE, False),  # compares the rollouts of a prompt with each other
        ("resources", "no_such_worker", {}, False),
        ("models", "openai_model", {"openai_base_url": URL, "openai_api_key": "-", "openai_model": "any"}, True),
        ("models", "vllm_model", VLLM, True),
        ("models", "local_vllm_model", {"model": "any"}, False),  # has an engine
    ],
)
async def test_which_workers_share_a_process(
    kind: Any, implementation: str, options: dict[str, Any], shares: bool
) -> None:
    assert cells.shares_process(Instance("name", kind, implementation, options)) is shares


async def test_with_roles_each_kind_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = [agent("asker", "grader"), Instance("grader", "resources", "mcqa")]
    monkeypatch.setenv(credentials.VARIABLE, str(tmp_path))
    assert cells.cells(workers) == []
    monkeypatch.delenv(credentials.VARIABLE)
    assert cells.cells(workers)[0] == workers
