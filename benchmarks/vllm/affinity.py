"""python -m benchmarks.vllm.affinity: how much of their prompts two real engines find in their caches.

Five-turn sessions on two replicas, with calls that go to the queue group and with calls that are routed by session.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.vllm import ways
from benchmarks.vllm.engine import params

TURNS = 5
TOKENS = 24
IN_FLIGHT = 32


async def hit_rate(sessions: int, *, affinity: bool) -> float:
    """The share of all prompt tokens that the engine which was asked had in its cache."""
    total = cached = 0
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def converse(number: int, ask: ways.Ask) -> None:
        nonlocal total, cached
        text = f"Session {number}. " + "".join(f"What is {number} + {turn}? " for turn in range(3))
        request = params(text, TOKENS)
        async with slots:
            for _ in range(TURNS):
                reply: dict[str, Any] = await ask(request, f"session-{number}")
                usage = reply["usage"]
                total += usage["input_tokens"]
                cached += usage["input_tokens_details"]["cached_tokens"] or 0
                following = params("And then?", TOKENS)["input"]
                request = {**request, "input": [*request["input"], *reply["output"], *following]}

    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        async with ways.over_nats(Path(folder), replicas=2, routed=affinity) as ask:
            await asyncio.gather(*(converse(number, ask) for number in range(sessions)))
    return cached / total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm.affinity")
    parser.add_argument("--sessions", type=int, default=200)
    given = parser.parse_args()
    for affinity in (False, True):
        rate = uvloop.run(hit_rate(given.sessions, affinity=affinity))
        label = "with" if affinity else "without"
        print(f"{label} affinity: {rate:.1%} of the prompt tokens were in the cache", flush=True)


if __name__ == "__main__":
    main()
