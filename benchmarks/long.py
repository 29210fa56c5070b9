"""python -m benchmarks.long: what a turn costs in a conversation of 5 turns, and in one of 200."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks.conversing import READ, long_prompt
from benchmarks.measure import cpu_s, family
from gymq.bus import Bus, streams
from gymq.cluster.launch import Cluster
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

TURNS = (5, 25, 50, 100, 200)
REPEATS = 16
GROUP_TURNS = (1, 5, 20, 50)
GROUP_PROMPT_TOKENS = 8192
GROUP_TASKS = 8
TURNS_IN_ALL = 6400  # of a measurement
IN_FLIGHT = 32
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    """Of one turn, but for the memory; bytes."""

    turns: int
    cpu_ms: float
    wire: float  # into the server, entries of journals and stored rollouts among it
    store: float
    file: float
    peak: dict[str, int]  # of each process when all together had the most; bytes, proportional

    @property
    def peak_bytes(self) -> int:
        return sum(self.peak.values())

    def line(self) -> str:
        return (
            f"{self.turns:5}  {self.cpu_ms:8.2f}  {self.wire / 1000:8.1f}  {self.store / 1000:8.1f}"
            f"  {self.file / 1000:8.1f}  {self.peak_bytes / 2**20:8,.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 and 200 turns only, a quarter as many")
    parser.add_argument("--memory", action="store_true", help="256 rollouts of 100 turns in flight: their memory")
    parser.add_argument("--rewriting", action="store_true", help="a chat template that drops thoughts of earlier turns")
    parser.add_argument("--group", action="store_true", help="what samples of one long prompt share: stored bytes")
    arguments = parser.parse_args()
    if arguments.group:
        _compare_groups()
        return
    if arguments.memory:
        cost = _once(100, True, 256, in_flight=256)
        print(", ".join(f"{name} {size / 2**20:,.0f}" for name, size in cost.peak.items()))
        print(f"256 rollouts of 100 turns in flight: {cost.peak_bytes / 2**20:,.0f} MiB in all processes together")
        return
    turns = (TURNS[0], TURNS[-1]) if arguments.quick else TURNS
    in_all = TURNS_IN_ALL // 4 if arguments.quick else TURNS_IN_ALL
    ratios = {}
    for token_ids in (True,) if arguments.rewriting else (False, True):
        print(f"\n{'with' if token_ids else 'without'} token ids; of a turn:")
        print("turns    CPU ms   wire kB  store kB   file kB  peak MiB")
        costs = []
        for number in turns:
            rollouts = max(REPEATS, in_all // number // REPEATS * REPEATS)
            cost = _once(number, token_ids, rollouts, rewriting=arguments.rewriting)
            print(cost.line(), flush=True)
            costs.append(cost)
        few, many = costs[0], costs[-1]
        ratios[token_ids] = many.cpu_ms / few.cpu_ms
        print(
            f"{many.turns} turns to {few.turns}: CPU {ratios[token_ids]:.2f}, wire {many.wire / few.wire:.2f}, "
            f"store {many.store / few.store:.2f}, file {many.file / few.file:.2f}"
        )
    print(f"\nratio {ratios[True]:.2f}")


def _compare_groups() -> None:
    """Print what a rollout costs that has a task of its own, and one of a group of samples of the same prompt."""
    print(f"a prompt of {GROUP_PROMPT_TOKENS} tokens; of a rollout:")
    print("turns  samples    CPU ms   wire kB  store kB   file kB")
    for turns in GROUP_TURNS:
        for repeats in (1, REPEATS):
            rollouts = GROUP_TASKS * REPEATS
            cost = _once(turns, True, rollouts, repeats=repeats, prompt_tokens=GROUP_PROMPT_TOKENS)
            print(
                f"{turns:5}  {repeats:7}  {turns * cost.cpu_ms:8.2f}  {turns * cost.wire / 1000:8.1f}"
                f"  {turns * cost.store / 1000:8.1f}  {turns * cost.file / 1000:8.1f}",
                flush=True,
            )


def _once(
    turns: int,
    token_ids: bool,
    rollouts: int,
    *,
    in_flight: int = IN_FLIGHT,
    repeats: int = REPEATS,
    prompt_tokens: int = 0,
    rewriting: bool = False,
) -> Cost:
    num_tasks = max(REPEATS, rollouts // repeats)
    rows = b"".join(_row(number, turns, token_ids, prompt_tokens, rewriting) for number in range(num_tasks))
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        return uvloop.run(_run(turns, rows, rollouts, in_flight, repeats, Path(folder)))


async def _run(turns: int, rows: bytes, rollouts: int, in_flight: int, repeats: int, folder: Path) -> Cost:
    data = folder / "rows.jsonl"
    data.write_bytes(rows)
    references: dict[str, Any] = {
        "resources_server": {"type": "resources_servers", "name": "book"},
        "model_server": {"type": "responses_api_models", "name": "reader"},
    }
    instances = [
        Instance("reader", "models", f"{HERE / 'conversing.py'}:Reader"),
        Instance("book", "resources", f"{HERE / 'conversing.py'}:Book"),
        Instance("agent", "agents", "simple_agent", references),
    ]
    async with Cluster(instances, folder=folder, log_level="warning") as cluster:
        bus = await Bus.connect(cluster.url, role="client", name="benchmark")
        await _collect(bus, data, folder / "warm.jsonl", REPEATS, in_flight, repeats)
        processes = family(os.getpid())
        stored, received = await _stored_bytes(bus), await _received_bytes(bus)
        output = folder / "rollouts.jsonl"
        names = {child.process.pid: child.name for child in cluster.children if child.process is not None}
        names[os.getpid()] = "collection"
        # Workers are forked, so their command lines are that of the process that forks them.
        names = {one.pid: "fork server" for one in processes if "gymq.cluster.forkserver" in one.cmdline()} | names
        with _watched(processes) as sizes:
            cpu = cpu_s(processes)
            collection = await _collect(bus, data, output, rollouts, in_flight, repeats)
            cpu = cpu_s(processes) - cpu
        stored, received = await _stored_bytes(bus) - stored, await _received_bytes(bus) - received
        await bus.close()
    if collection.progress.failed or collection.progress.done != rollouts:
        raise RuntimeError(f"{collection.progress.failed} of {rollouts} failed")
    in_all = turns * rollouts
    file = output.stat().st_size
    peak = {names.get(one.pid, "nats-server"): size for one, size in zip(processes, sizes, strict=True)}
    return Cost(turns, 1000 * cpu / in_all, received / in_all, stored / in_all, file / in_all, peak)


def _row(number: int, turns: int, token_ids: bool, prompt_tokens: int, rewriting: bool) -> bytes:
    asked = {
        "turns": str(turns),
        "token_ids": "yes" if token_ids else "no",
        "prompt_tokens": str(prompt_tokens),
        "rewriting": "yes" if rewriting else "no",
    }
    params: dict[str, Any] = {
        "input": [{"role": "user", "content": f"{long_prompt(prompt_tokens)[0]}Read book {number}."}],
        "tools": [READ],
        "metadata": asked,
    }
    return json.dumps({"responses_create_params": params}).encode() + b"\n"


async def _collect(bus: Bus, data: Path, output: Path, rollouts: int, in_flight: int, repeats: int) -> Collection:
    options = CollectOptions(
        input=data,
        output=output,
        materialise=MaterialiseOptions(agent_name="agent", num_repeats=repeats, limit=rollouts // repeats),
        window=in_flight,
        token_ids="chain",
    )
    collection = Collection(bus, RunPlan(options))
    await collection.run()
    return collection


async def _stored_bytes(bus: Bus) -> int:
    """Bytes of stored rollouts, with the parts of large ones."""
    infos = [await bus.js.api(f"STREAM.INFO.{name}") for name in (streams.ROLLOUTS, streams.PARTS)]
    return sum(int(info["state"]["bytes"]) for info in infos)


async def _received_bytes(bus: Bus) -> int:
    """Bytes of all messages that the server has received."""
    answer = await bus.request("$SYS.REQ.ACCOUNT.PING.STATZ", b"{}", timeout_s=5.0)
    (account,) = json.loads(answer.data)["data"]["account_statz"]
    return int(account["received"]["bytes"])


@contextmanager
def _watched(processes: list[psutil.Process]) -> Iterator[Any]:
    """Find the memory of processes at their peak, from one that is not measured: looking costs CPU time too."""
    context = multiprocessing.get_context("spawn")
    peak, ready = context.Array("q", len(processes)), context.Event()
    watcher = context.Process(target=_watch, args=([process.pid for process in processes], peak, ready), daemon=True)
    watcher.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the process that watches the memory did not start")
        yield peak
    finally:
        watcher.terminate()
        watcher.join()


def _watch(pids: list[int], peak: Any, ready: Any) -> None:
    processes = [psutil.Process(pid) for pid in pids]
    while True:
        sizes = [process.memory_full_info().pss for process in processes]
        if sum(sizes) > sum(peak):
            peak[:] = sizes
        ready.set()
        time.sleep(0.5)


if __name__ == "__main__":
    main()
