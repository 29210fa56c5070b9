"""A policy on vLLM in a cluster: rollouts over NATS, exact chains, new weights, and engines that die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from gymq.bus import Bus
from gymq.bus.weights import pushing
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from tests.support.waiting import until

from .tiny_policy import POLICY, ROOT, options

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

DEMO = ROOT / "examples" / "demo_vllm"


def instances() -> list[Instance]:
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "adder"},
    }
    return [
        Instance("policy_model", "models", "local_vllm_model", options()),
        Instance("adder", "resources", str(DEMO / "adder.py")),
        Instance("adder_simple_agent", "agents", "simple_agent", references),
    ]


@dataclass
class Place:
    """A running cluster, and collections on it."""

    cluster: Cluster
    bus: Bus
    folder: Path
    num_collections: int = field(default=0)

    async def collect(self, num_repeats: int) -> list[dict[str, Any]]:
        """Roll out the rows with a tool; the results."""
        self.num_collections += 1
        folder = self.folder / f"collection{self.num_collections}"
        folder.mkdir()
        rows = [json.loads(line) for line in (DEMO / "rows.jsonl").read_text().splitlines()]
        with_tool = [row for row in rows if row["agent_ref"]["name"] == "adder_simple_agent"]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in with_tool))
        output = folder / "rollouts.jsonl"
        materialise = MaterialiseOptions(num_repeats=num_repeats)
        await Collection(self.bus, RunPlan(CollectOptions(folder / "rows.jsonl", output, materialise))).run()
        return [json.loads(line) for line in output.read_text().splitlines()]

    def engines(self) -> list[psutil.Process]:
        """vLLM's processes under the model worker."""
        return [one for one in psutil.Process(self.model_pid()).children(recursive=True) if "VLLM" in _name(one)]

    def model_pid(self) -> int:
        (child,) = [child for child in self.cluster.children if child.spec.role == "model"]
        assert isinstance(child, Child)
        assert child.process is not None
        return child.process.pid


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(instances(), folder=folder, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="trainer", name="test")
        yield Place(cluster, bus, folder)
        await bus.close()


async def test_tokens_of_a_rollout_with_a_tool_are_one_chain(place: Place) -> None:
    results = await place.collect(num_repeats=4)
    assert len(results) == 64
    num_chained = 0
    for result in results:
        seen: list[int] = []
        turns = [item for item in result["response"]["output"] if item.get("generation_token_ids")]
        for item in turns:
            assert item["prompt_token_ids"][: len(seen)] == seen
            seen = [*item["prompt_token_ids"], *item["generation_token_ids"]]
        num_chained += len(turns) > 1
    assert num_chained > len(results) // 2


async def test_new_weights_come_over_nats_and_rollouts_say_so(place: Place) -> None:
    pushed = await pushing.push(place.bus, "policy_model", "step-7", weights=POLICY / "model.safetensors")
    assert pushed.is_complete
    assert len(pushed.confirmed) == 1
    results = await place.collect(num_repeats=1)
    assert {result["policy_version"] for result in results} == {"step-7"}


@pytest.mark.nightly
async def test_rollouts_outlive_the_engine(place: Place) -> None:
    before = place.model_pid()
    collecting = asyncio.create_task(place.collect(num_repeats=32))
    await asyncio.sleep(0.3)
    for engine in place.engines():
        engine.kill()
    results = await collecting
    assert len(results) == 512
    assert all("reward" in result for result in results)
    assert place.model_pid() != before


async def test_no_process_of_vllm_outlives_its_worker(place: Place) -> None:
    worker, engines = psutil.Process(place.model_pid()), place.engines()
    assert engines
    worker.kill()
    await until(lambda: not any(engine.is_running() and engine.status() != "zombie" for engine in engines))
