"""python -m benchmarks.admission: rollouts held back by the KV cache, next to fixed numbers of them.

Two data sets in one run, against `simulated_model` with a prefix cache and a rate at which it computes prompts: short
conversations, then long ones. A number of rollouts at a time that suits the short ones has the long ones evict each
other from the cache, and one that suits the long ones leaves it empty before. Each is tried; then none is set. With
`--http` the same against an engine of that size over HTTP, asked by `vllm_model`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import uvloop
from gymq.workers.models.simulated_model.worker import SimulatedModel
from gymq.workers.models.vllm_model.worker import VLLMModel

from benchmarks.conversing import READ
from benchmarks.engine import Speed, asked_of, engine_options, engines, reading
from benchmarks.scale.watched import watched
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

CACHE_BLOCKS = 4096  # of 16 tokens
PREFILL_TOKENS_PER_S = 40_000.0
LATENCY_S = 0.5  # of a call, beside the computation of its prompt
SLOTS = 1000  # more than are ever used: what limits the engine is its cache
SHORT_TURNS, LONG_TURNS = 3, 33
FIXED = (4, 6, 8, 12, 16, 32)
HERE = Path(__file__).parent


class Silent(SimulatedModel):
    """States no load, so no rollout is held back."""

    def load(self) -> None:
        return None


class SilentOverHTTP(VLLMModel):
    """The same of an engine over HTTP."""

    def load(self) -> None:
        return None


def row(number: int, turns: int) -> bytes:
    script = [*[[{"call": {"name": "read", "arguments": {}}}]] * (turns - 1), [{"text": "Done."}]]
    params = {
        "input": [{"role": "user", "content": f"Reader {number}: read {turns - 1} pages of the book."}],
        "tools": [READ],
        "metadata": {"simulated_solution": json.dumps(script)},
    }
    return json.dumps({"responses_create_params": params}).encode() + b"\n"


async def collected(
    model: Instance, rows: list[bytes], concurrency: int | None = None
) -> tuple[float, list[VerifiedRollout]]:
    """Run all rollouts of an agent that reads; return the seconds that it took, and the rollouts."""
    references: dict[str, Any] = {
        "resources_server": {"type": "resources_servers", "name": "book"},
        "model_server": {"type": "responses_api_models", "name": model.name},
    }
    if concurrency is not None:
        references["max_concurrency"] = concurrency
    instances = [
        model,
        Instance("book", "resources", f"{HERE / 'conversing.py'}:Book"),
        Instance("agent", "agents", "simple_agent", references),
    ]
    async with watched(instances) as cluster:
        data = cluster.folder / "rows.jsonl"
        data.write_bytes(b"".join(rows))
        collect = CollectOptions(
            input=data,
            output=cluster.folder / "rollouts.jsonl",
            materialise=MaterialiseOptions(agent_name="agent", num_repeats=1),
            window=len(rows),
        )
        collection = Collection(cluster.bus, RunPlan(collect))
        started = time.perf_counter()
        progress = await collection.run()
        took = time.perf_counter() - started
        found = [outcome async for _, outcome in OutcomeStore(cluster.bus).read(progress.run)]
    verified = [outcome for outcome in found if isinstance(outcome, VerifiedRollout)]
    if len(verified) != len(rows):
        raise SystemExit(f"{len(rows) - len(verified)} of {len(rows)} rollouts failed")
    return took, verified


async def seconds(num_short: int, num_long: int, concurrency: int | None) -> tuple[float, float, float]:
    """Return the seconds that all rollouts took, those of the slowest, and the share of prompts cached."""
    options = {"skill": 1.0, "token_ids": True, "latency_s": LATENCY_S, "cache_blocks": CACHE_BLOCKS}
    options["prefill_tokens_per_s"] = PREFILL_TOKENS_PER_S
    worker = "simulated_model" if concurrency is None else f"{HERE / 'admission.py'}:Silent"
    turns = [SHORT_TURNS] * num_short + [LONG_TURNS] * num_long
    rows = [row(number, count) for number, count in enumerate(turns)]
    took, found = await collected(Instance("policy", "models", worker, options), rows, concurrency)
    usages: list[dict[str, Any]] = [outcome.response["usage"] for outcome in found]
    cached = sum(usage["input_tokens_details"]["cached_tokens"] for usage in usages)
    return took, max(one.duration_s for one in found), cached / sum(usage["input_tokens"] for usage in usages)


async def seconds_over_http(num_short: int, num_long: int, concurrency: int | None) -> tuple[float, float, float]:
    """Return the same for an engine over HTTP."""
    speed = Speed(SLOTS, LATENCY_S, CACHE_BLOCKS, PREFILL_TOKENS_PER_S)
    worker = "vllm_model" if concurrency is None else f"{HERE / 'admission.py'}:SilentOverHTTP"
    turns = [SHORT_TURNS] * num_short + [LONG_TURNS] * num_long
    rows = [reading(number, count) for number, count in enumerate(turns)]
    async with engines(speed) as urls:
        model = Instance("policy", "models", worker, {**engine_options(urls), "num_workers": 2})
        took, found = await collected(model, rows, concurrency)
        asked = await asked_of(urls[0])
    return took, max(one.duration_s for one in found), asked.cached_tokens / asked.prompt_tokens


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission")
    parser.add_argument("--short", type=int, default=600, help="short conversations, which come first (default 600)")
    parser.add_argument("--long", type=int, default=30, help="long conversations (default 30)")
    parser.add_argument("--http", action="store_true", help="ask an engine over HTTP")
    given = parser.parse_args()
    measure = seconds_over_http if given.http else seconds
    fixed = []
    for concurrency in (*FIXED, None):
        took, slowest, cached = uvloop.run(measure(given.short, given.long, concurrency))
        label = "by the KV cache" if concurrency is None else f"{concurrency:3} rollouts at a time"
        print(f"{label}: {took:.0f} s, the slowest rollout {slowest:.0f} s, {cached:.1%} of prompts cached", flush=True)
        if concurrency is not None:
            fixed.append(took)
    print(f"throughput to the best fixed number {min(fixed) / took:.2f}")


if __name__ == "__main__":
    main()
