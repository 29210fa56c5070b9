"""python -m benchmarks.vllm: requests a second on one engine, over NATS, in this process, and over HTTP.

Printed as ratios to the engine in this process, because the rates belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.vllm import ways
from benchmarks.vllm.engine import params

TOKENS = 32
WAYS = {"in process": ways.in_process, "NATS": ways.over_nats, "HTTP": ways.over_http}


async def rates(way: str, in_flight: list[int], requests: int) -> dict[int, float]:
    """Requests a second with so many in flight."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        async with WAYS[way](Path(folder)) as ask:
            for number in in_flight:
                await _ask_all(ask, number, number)  # warm
                started = time.perf_counter()
                await _ask_all(ask, number, requests)
                found[number] = requests / (time.perf_counter() - started)
    return found


async def _ask_all(ask: ways.Ask, in_flight: int, requests: int) -> None:
    slots = asyncio.Semaphore(in_flight)

    async def one(number: int) -> None:
        async with slots:
            reply = await ask(params(f"What is {number} + 1?", TOKENS), f"session-{number}")
            if reply["usage"]["output_tokens"] != TOKENS:
                raise SystemExit(f"a reply has {reply['usage']['output_tokens']} tokens instead of {TOKENS}")

    await asyncio.gather(*(one(number) for number in range(requests)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm")
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[64, 256])
    given = parser.parse_args()
    measured = {way: uvloop.run(rates(way, given.in_flight, given.requests)) for way in WAYS}
    for number in given.in_flight:
        base = measured["in process"][number]
        for way, rate in measured.items():
            print(
                f"{number} in flight, {way}: {rate[number]:,.0f} requests/s, {rate[number] * TOKENS:,.0f} tokens/s, "
                f"{rate[number] / base:.2f} of in process",
                flush=True,
            )


if __name__ == "__main__":
    main()
