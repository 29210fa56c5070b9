"""`python -m benchmarks.weights --mb 1024`: seconds and memory of a push of weights, by a path and over NATS.

The replicas read all bytes and keep none. Memory is the largest resident size of each process above that before the
push; the file lies in a temporary folder, so where this is in memory its pages are the system's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from gymq.bus import Bus
from gymq.bus.weights.pushing import push
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.cluster.server.store import Store
from gymq.protocol.instances import Instance

MODEL = str(Path(__file__).with_name("loading_model.py"))
CHUNK_BYTES = 16 << 20
EVERY_S = 0.02  # memory is looked at
DEADLINE_S = 600.0


def write(file: Path, num_bytes: int) -> None:
    """Write a tensor of random bytes in the safetensors format."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}).encode()
    with file.open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for start in range(0, num_bytes, CHUNK_BYTES):
            out.write(os.urandom(min(CHUNK_BYTES, num_bytes - start)))


@asynccontextmanager
async def watched(processes: dict[str, psutil.Process]) -> AsyncIterator[dict[str, float]]:
    """Yield how many MB each process grew at most, known at the end."""
    before = {name: process.memory_info().rss for name, process in processes.items()}
    grown = dict.fromkeys(processes, 0.0)

    async def look() -> None:
        while True:
            for name, process in processes.items():
                grown[name] = max(grown[name], (process.memory_info().rss - before[name]) / 2**20)
            await asyncio.sleep(EVERY_S)

    looking = asyncio.create_task(look())
    try:
        yield grown
    finally:
        looking.cancel()


async def main(num_bytes: int, replicas: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory(prefix="weights-") as name:
        folder = Path(name)
        file = folder / "weights.safetensors"
        write(file, num_bytes)
        model = Instance("policy_model", "models", MODEL, {"num_workers": replicas})
        async with (
            Cluster([model], folder=folder, log_level="warning") as cluster,
            await Bus.connect(cluster.url, role="trainer", name="benchmark") as bus,
        ):
            processes = {"trainer": psutil.Process()}
            record = Store(folder / "jetstream").read_record()
            if record is not None:
                processes["nats"] = psutil.Process(record.pid)
            children = [child for child in cluster.children if isinstance(child, Child)]
            for child in children:
                if child.process is not None and child.spec.role == "model":
                    processes[child.name] = psutil.Process(child.process.pid)
            for repeat in range(repeats):
                ways: dict[str, dict[str, Any]] = {"path": {"path": file}, "NATS": {"weights": file}}
                for way, given in ways.items():
                    async with watched(processes) as grown:
                        started = time.monotonic()
                        pushed = await push(bus, "policy_model", f"{way}-{repeat}", deadline_s=DEADLINE_S, **given)
                        seconds = time.monotonic() - started
                    assert len(pushed.confirmed) == replicas, pushed
                    memory = ", ".join(f"{process} {mb:.0f}" for process, mb in grown.items())
                    print(f"{way}: {seconds:.1f} s, {num_bytes / seconds / 2**20:.0f} MB/s; MB: {memory}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.mb << 20, arguments.replicas, arguments.repeats))
