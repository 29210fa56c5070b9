"""A workload through gymq: real worker processes, the real collector, durability on."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Measured, cpu_s, family, resident_bytes
from benchmarks.workloads import Workload
from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.launch import Cluster
from gymq.data.jsonl import JsonlFile
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

REPEATS = 16
HERE = Path(__file__).parent


def instances(workload: Workload) -> list[Instance]:
    environment = "stateful.py" if workload.stateful else "stateless.py"
    references: dict[str, Any] = {
        "resources_server": {"type": "resources_servers", "name": "bench_env"},
        "model_server": {"type": "responses_api_models", "name": "bench_model"},
    }
    return [
        Instance("bench_model", "models", "benchmarks.model"),
        Instance("bench_env", "resources", str(HERE / environment)),
        Instance("bench_agent", "agents", "simple_agent", references),
    ]


async def run(workload: Workload, folder: Path) -> Measured:
    """Collect the workload once on a warm cluster."""
    data = folder / "rows.jsonl"
    data.write_bytes(b"".join(workload.row(number) + b"\n" for number in range(workload.rollouts // REPEATS)))
    workers = instances(workload)
    async with Cluster(workers, folder=folder, log_level="warning", layout=workload.layout) as cluster:
        bus = await Bus.connect(cluster.url, role="client", name="benchmark")
        await _collect(bus, workload, data, folder / "warm.jsonl", max(64, workload.window // 8))
        processes = family(os.getpid())
        before = cpu_s(processes)
        started = time.perf_counter()
        peak = asyncio.create_task(_peak(processes))
        collection = await _collect(bus, workload, data, folder / "rollouts.jsonl", workload.rollouts)
        wall = time.perf_counter() - started
        cpu = cpu_s(processes) - before
        peak.cancel()
        latencies = [outcome.duration_s async for _, outcome in OutcomeStore(bus).read(collection.progress.run)]
        await bus.close()
    _check(collection)
    return Measured(workload.rollouts, wall, cpu, max(_PEAKS), latencies)


_PEAKS: list[int] = []


async def _peak(processes: Any) -> None:
    _PEAKS.clear()
    while True:
        _PEAKS.append(resident_bytes(processes))
        await asyncio.sleep(0.5)


async def _collect(bus: Bus, workload: Workload, data: Path, output: Path, rollouts: int) -> Collection:
    options = CollectOptions(
        input=data,
        output=output,
        materialise=MaterialiseOptions(agent_name="bench_agent", num_repeats=REPEATS, limit=rollouts // REPEATS),
        window=workload.window,
    )
    collection = Collection(bus, RunPlan(options))
    await collection.run()
    return collection


def _check(collection: Collection) -> None:
    """Every rollout is in the file, with its reward."""
    progress = collection.progress
    rewards = [json.loads(line)["reward"] for line in JsonlFile(collection.files.output)]
    if progress.failed or len(rewards) != progress.total or set(rewards) != {1.0}:
        raise RuntimeError(f"{progress.failed} failed, {len(rewards)} rows, rewards {set(rewards)}")
