"""python -m benchmarks.vllm: what a request costs in front of one engine, over NATS, in this process, and over HTTP.

CPU is that of all processes but the engine's core, the asking one among them: what the way to the engine costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks.measure import cpu_s, family
from benchmarks.vllm import ways
from benchmarks.vllm.engine import params, user_message
from gymq.protocol.conversation import ConversationItems

TOKENS = 32
TURNS = 20
SESSION_TOKENS = 24  # of a turn's reply at most
WAYS = {"in process": ways.in_process, "NATS": ways.over_nats, "HTTP": ways.over_http}
CORE = "EngineCore"  # in the title of the process of vLLM that runs the model


@dataclass(frozen=True)
class Cost:
    """What was measured of one way."""

    per_second: float  # requests
    cpu_ms: float  # of a request, in front of the engine


async def costs(way: str, in_flight: list[int], requests: int, sessions: int) -> dict[str, Cost]:
    """Measure single requests with so many in flight, then conversations of `TURNS` turns."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        async with WAYS[way](Path(folder)) as ask:
            for number in in_flight:
                await _ask_all(ask, number, number)  # warm
                found[f"{number} in flight"] = await _measured(requests, _ask_all(ask, number, requests))
            if sessions:
                await _converse_all(ask, "warm", 8)
                work = _converse_all(ask, "session", sessions)
                found[f"{sessions} sessions of {TURNS} turns"] = await _measured(sessions * TURNS, work)
    return found


async def _measured(requests: int, work: Any) -> Cost:
    processes = [one for one in family(os.getpid()) if not _is_left_out(one)]
    cpu, started = cpu_s(processes), time.perf_counter()
    await work
    wall = time.perf_counter() - started
    return Cost(requests / wall, 1000 * (cpu_s(processes) - cpu) / requests)


def _is_left_out(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE or CORE in " ".join(process.cmdline())


async def _ask_all(ask: ways.Ask, in_flight: int, requests: int) -> None:
    slots = asyncio.Semaphore(in_flight)

    async def one(number: int) -> None:
        async with slots:
            _check(await ask(params(f"What is {number} + 1?", TOKENS), f"session-{number}"), TOKENS)

    await asyncio.gather(*(one(number) for number in range(requests)))


async def _converse_all(ask: ways.Ask, name: str, sessions: int) -> None:
    async def converse(number: int) -> None:
        items = ConversationItems()
        for turn in range(TURNS):
            items.append(user_message(f"What is {number} + {turn}?"))
            reply = await ask({"input": items, "max_output_tokens": SESSION_TOKENS}, f"{name}-{number}")
            items.extend(reply["output"])

    await asyncio.gather(*(converse(number) for number in range(sessions)))


def _check(reply: dict[str, Any], tokens: int) -> None:
    if reply["usage"]["output_tokens"] != tokens:
        raise SystemExit(f"a reply has {reply['usage']['output_tokens']} tokens instead of {tokens}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm")
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--sessions", type=int, default=32, help=f"conversations of {TURNS} turns, all at once")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args()
    measured = {way: uvloop.run(costs(way, given.in_flight, given.requests, given.sessions)) for way in given.ways}
    base = measured.get("HTTP") or next(iter(measured.values()))
    for workload in base:
        for way, found in measured.items():
            cost, other = found[workload], base[workload]
            print(
                f"{workload}, {way}: {cost.cpu_ms:.2f} ms of CPU a request ({cost.cpu_ms / other.cpu_ms:.2f} of HTTP), "
                f"{cost.per_second:,.0f} requests/s ({cost.per_second / other.per_second:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
