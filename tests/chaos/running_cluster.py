"""A small cluster for one test: workers that play scripts, a connection, and what became of each rollout."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.bus.jetstream import JetStream
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.cluster.server.store import Store
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Outcome
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from tests.support.waiting import until

WORKERS = Path(__file__).parent / "workers"


@dataclass
class RunningCluster:
    """A running cluster and a client's connection to it."""

    processes: Cluster
    bus: Bus
    folder: Path

    @property
    def url(self) -> str:
        return self.processes.url

    @property
    def js(self) -> JetStream:
        return self.bus.js

    @property
    def log(self) -> Path:
        """Where model and tools note what they do."""
        return self.folder / "effects"

    def collection(self, name: str, rows: Iterable[dict[str, Any]], **options: Any) -> Collection:
        """A collection of these rows, not started."""
        data = self.folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        materialise = MaterialiseOptions(num_repeats=options.pop("num_repeats", 1))
        output = self.folder / f"{name}_rollouts.jsonl"
        return Collection(
            self.bus, RunPlan(CollectOptions(input=data, output=output, materialise=materialise, **options))
        )

    async def outcomes(self, run: str) -> list[Outcome]:
        """Everything stored for a run, in the order of tasks and rollouts."""
        stored = [outcome async for _, outcome in OutcomeStore(self.bus).read(run)]
        return sorted(stored, key=lambda outcome: (outcome.task_index, outcome.rollout_index))

    async def collect(self, name: str, rows: Iterable[dict[str, Any]], **options: Any) -> list[Outcome]:
        """Collect these rows to the end; every outcome that is stored."""
        collection = self.collection(name, rows, **options)
        progress = await collection.run()
        return await self.outcomes(progress.run)

    def model_calls(self) -> list[str]:
        """The sessions `run/task/rollout/attempt` of all model calls so far, each as often as it called."""
        lines = [line for path in self.log.glob("model-*") for line in path.read_text().splitlines()]
        return [line.split()[0] for line in lines if " begin " in line]

    def model_calls_running(self) -> int:
        """Model calls that have begun and not ended."""
        lines = [line for path in self.log.glob("model-*") for line in path.read_text().splitlines()]
        return sum(1 if " begin " in line else -1 for line in lines)

    def tool_calls(self) -> list[str]:
        """`session turn` of each tool call that began; with "stopped" behind it of each that was stopped."""
        return [line for path in self.log.glob("tools-*") for line in path.read_text().splitlines()]

    async def until_called(self, count: int) -> None:
        """Wait until the model was asked so often."""
        await until(lambda: len(self.model_calls()) >= count)

    @property
    def children(self) -> list[Child]:
        return [child for child in self.processes.children if isinstance(child, Child)]

    def child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    def pid(self, name: str) -> int:
        """Of a worker process, or of the embedded server (`nats`)."""
        if name == "nats":
            record = Store(self.folder / "jetstream").read_record()
            assert record is not None
            return record.pid
        process = self.child(name).process
        assert process is not None
        return process.pid


@asynccontextmanager
async def running(
    folder: Path, instances: Iterable[Instance], *, num_models: int = 1, **options: Any
) -> AsyncIterator[RunningCluster]:
    """A cluster with a `policy`, in so many processes, and these further workers."""
    log = folder / "effects"
    log.mkdir()
    policy = Instance("policy", "models", str(WORKERS / "policy.py"), {"log": str(log), "num_workers": num_models})
    async with Cluster([policy, *instances], folder=folder, **({"drain_s": 5.0} | options)) as cluster:
        bus = await Bus.connect(cluster.url, role="client", name="chaos")
        try:
            yield RunningCluster(cluster, bus, folder)
        finally:
            await bus.close()


def environment(name: str, implementation: str, folder: Path, **options: Any) -> Instance:
    """A resources instance from `workers/`."""
    return Instance(name, "resources", str(WORKERS / implementation), {"log": str(folder / "effects")} | options)
