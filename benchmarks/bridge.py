"""What HTTP adds to a rollout: the same rollouts straight through the queue, over the bridge, and a bare server.

    python -m benchmarks.bridge            # small rollouts, 1, 64 and 1,024 at a time
    python -m benchmarks.bridge --large    # 1,024 results of 65,536 tokens at a time, rolled out before

The bare server is of the bridge's own framework. It reads the row and answers with a stored result, so what it takes is
what HTTP itself costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import uvloop
from aiohttp import web

from benchmarks.measure import cpu_s, family
from benchmarks.ours import instances
from benchmarks.workloads import Workload
from gymq.bus import Bus
from gymq.cluster.launch import Cluster
from gymq.ext.nemo_gym.bridge import Bridge
from gymq.ext.nemo_gym.directory import Directory, InstanceAddress
from gymq.ext.nemo_gym.rollouts import Rollouts
from gymq.ext.nemo_gym.settings import BridgeSettings
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from tests.support.ports import free_port

HOST = "127.0.0.1"
JSON = {"Content-Type": "application/json"}
AGENT = "bench_agent"
SMALL = Workload("small", "one model call, one verification", turns=1, tokens=0, rollouts=0, window=0)
LARGE = Workload("large", "65,536 tokens", turns=1, tokens=65_536, rollouts=0, window=0)
ROLLOUTS = {1: 400, 64: 4000, 1024: 6000}  # by how many are in flight

Post = Callable[[int], Awaitable[None]]  # of the rollout with this number


@dataclass(frozen=True)
class Line:
    """What was measured of one way at one concurrency."""

    way: str
    in_flight: int
    per_second: float
    p50_ms: float
    p99_ms: float
    server_ms: float  # CPU of the HTTP server's process, per request
    all_ms: float  # CPU of all processes, per request


async def serve_bridge(url: str, port: int, ready: object) -> None:
    bus = await Bus.connect(url, role="bridge", name="benchmark")
    place = InstanceAddress(AGENT, "agents", "simple_agent", HOST, free_port(HOST), {})
    settings = BridgeSettings(port=port, on_untrainable="allow")
    async with Bridge(bus, Directory([place], HOST, port), settings):
        ready.set()  # type: ignore[attr-defined]
        await asyncio.Event().wait()


async def _serve_bare(result: bytes, port: int, ready: object) -> None:
    async def run(request: web.Request) -> web.Response:
        json.loads(await request.read())
        return web.Response(body=result, content_type="application/json")

    app = web.Application(client_max_size=2**30)
    app.router.add_post("/run", run)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, port, backlog=16_384).start()
    ready.set()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def in_process(serve: Callable[..., Awaitable[None]], *arguments: object) -> multiprocessing.Process:
    """Run a server in a process of its own; returns when it listens."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_run, args=(serve, *arguments, ready), daemon=True)
    process.start()
    if not ready.wait(60):
        raise RuntimeError("the server did not start")
    return process


def _run(serve: Callable[..., Awaitable[None]], *arguments: object) -> None:
    uvloop.run(serve(*arguments))


async def _measure(way: str, in_flight: int, total: int, post: Post, server: int | None) -> Line:
    """Post so many rows, with so many in flight."""
    processes = family(os.getpid())
    left = iter(range(total))
    latencies: list[float] = []

    async def one_after_another() -> None:
        for number in left:
            started = time.perf_counter()
            await post(number)
            latencies.append(time.perf_counter() - started)

    def now() -> tuple[float, float]:
        return cpu_s([psutil.Process(server)]) if server else 0.0, cpu_s(processes)

    server_before, all_before = now()
    started = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    wall = time.perf_counter() - started
    server_after, all_after = now()
    latencies.sort()
    return Line(
        way,
        in_flight,
        total / wall,
        1000 * statistics.median(latencies),
        1000 * latencies[int(0.99 * (total - 1))],
        1000 * (server_after - server_before) / total,
        1000 * (all_after - all_before) / total,
    )


def _over_http(session: aiohttp.ClientSession, port: int, row: bytes, *, keyed: bool) -> Post:
    url = f"http://{HOST}:{port}/run"

    async def post(number: int) -> None:
        headers = JSON | ({"Idempotency-Key": f"{number}"} if keyed else {})
        async with session.post(url, data=row, headers=headers) as answer:
            body = await answer.read()
            if answer.status != 200 or not body.startswith(b"{"):
                raise RuntimeError(f"{answer.status}: {body[:500]!r}")

    return post


def _workers(workload: Workload) -> list[Instance]:
    if not workload.tokens:
        return instances(workload)
    _, *others = instances(workload)
    return [Instance("bench_model", "models", "benchmarks.long_reply"), *others]


async def _compare(workload: Workload, plan: dict[int, int]) -> list[Line]:
    """Each way at each concurrency. Long rollouts are made before, and what is measured is how they are handed out."""
    row = json.dumps(json.loads(workload.row(0)) | {"agent_ref": {"name": AGENT}}).encode()
    keyed = bool(workload.tokens)
    bare_port, bridge_port = free_port(HOST), free_port(HOST)
    lines = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymq-bench-")))
        cluster = await stack.enter_async_context(Cluster(_workers(workload), folder=folder, log_level="warning"))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        bus = await Bus.connect(cluster.url, role="bridge", name="benchmark")
        stack.push_async_callback(bus.close)
        queue = Rollouts(bus, "straight", rollout_timeout_s=600.0, queue_timeout_s=600.0)
        await queue.start()
        stack.push_async_callback(queue.stop)

        async def straight(number: int) -> None:
            outcome = await queue.roll_out(row, AGENT, f"{number}" if keyed else None)
            if not isinstance(outcome, VerifiedRollout):
                raise RuntimeError(f"{outcome.failure_class} at {outcome.stage}: {outcome.message}")

        bridge = in_process(serve_bridge, cluster.url, bridge_port)
        stack.callback(bridge.terminate)
        async with session.post(f"http://{HOST}:{bridge_port}/run", data=row, headers=JSON) as answer:
            result = await answer.read()
        bare = in_process(_serve_bare, result, bare_port)
        stack.callback(bare.terminate)
        ways: list[tuple[str, Post, int | None]] = [
            ("bare", _over_http(session, bare_port, row, keyed=keyed), bare.pid),
            ("queue", straight, None),
            ("bridge", _over_http(session, bridge_port, row, keyed=keyed), bridge.pid),
        ]
        for in_flight, total in plan.items():
            for way, post, server in ways:
                # Warm; and where rollouts are to be there before, this makes them.
                await _measure(way, 16, total if keyed else max(64, in_flight), post, server)
                lines.append(await _measure(way, in_flight, total, post, server))
    print(f"{workload.what}; a result has {len(result):,} bytes")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="results of 65,536 tokens")
    large = parser.parse_args().large
    lines = uvloop.run(_compare(LARGE, {1024: 1024}) if large else _compare(SMALL, ROLLOUTS))
    print("way      in flight    per second    p50 ms    p99 ms   server CPU ms   all CPU ms")
    for line in lines:
        print(
            f"{line.way:8} {line.in_flight:9,}  {line.per_second:12,.0f} {line.p50_ms:9.1f} {line.p99_ms:9.1f}"
            f" {line.server_ms:15.2f} {line.all_ms:12.2f}"
        )


if __name__ == "__main__":
    main()
