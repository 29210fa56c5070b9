"""python -m benchmarks.admission: rollouts held back by the KV cache, next to fixed numbers of them.

Two data sets in one run, against `simulated_model` with a prefix cache and a rate at which it computes prompts: short
conversations, then long ones. A number of rollouts at a time that suits the short ones has the long ones evict each
other from the cache, and one that suits the long ones leaves it empty before. Each is tried; then none is set.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import uvloop
from gymq.workers.models.simulated_model.worker import SimulatedModel

from benchmarks.conversing import READ
from benchmarks.scale.watched import watched
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions

CACHE_BLOCKS = 4096  # of 16 tokens
PREFILL_TOKENS_PER_S = 40_000.0
LATENCY_S = 0.5  # of a call, beside the computation of its prompt
SHORT_TURNS, LONG_TURNS = 3, 33
FIXED = (4, 6, 8, 12, 16, 32)
HERE = Path(__file__).parent


class Silent(SimulatedModel):
    """States no load, so no rollout is held back."""

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


async def seconds(num_short: int, num_long: int, concurrency: int | None) -> tuple[float, float, float]:
    """Run all rollouts; return the seconds that it took, those of the slowest, and the share of prompts cached."""
    options = {"skill": 1.0, "token_ids": True, "latency_s": LATENCY_S, "cache_blocks": CACHE_BLOCKS}
    options["prefill_tokens_per_s"] = PREFILL_TOKENS_PER_S
    references: dict[str, Any] = {
        "resources_server": {"type": "resources_servers", "name": "book"},
        "model_server": {"type": "responses_api_models", "name": "policy"},
    }
    if concurrency is not None:
        references["max_concurrency"] = concurrency
    model = "simulated_model" if concurrency is None else f"{HERE / 'admission.py'}:Silent"
    instances = [
        Instance("policy", "models", model, options),
        Instance("book", "resources", f"{HERE / 'conversing.py'}:Book"),
        Instance("agent", "agents", "simple_agent", references),
    ]
    async with watched(instances) as cluster:
        data = cluster.folder / "rows.jsonl"
        turns = [SHORT_TURNS] * num_short + [LONG_TURNS] * num_long
        data.write_bytes(b"".join(row(number, count) for number, count in enumerate(turns)))
        collect = CollectOptions(
            input=data,
            output=cluster.folder / "rollouts.jsonl",
            materialise=MaterialiseOptions(agent_name="agent", num_repeats=1),
            window=len(turns),
        )
        collection = Collection(cluster.bus, collect)
        started = time.perf_counter()
        progress = await collection.run()
        took = time.perf_counter() - started
        if progress.failed or progress.mean_reward != 1.0:
            raise SystemExit(f"{progress.failed} rollouts failed, the mean reward is {progress.mean_reward}")
        found = [outcome async for _, outcome in OutcomeStore(cluster.bus).read(progress.run)]
    usages: list[dict[str, Any]] = [outcome.response["usage"] for outcome in found]  # type: ignore[union-attr]
    cached = sum(usage["input_tokens_details"]["cached_tokens"] for usage in usages)
    return took, max(one.duration_s for one in found), cached / sum(usage["input_tokens"] for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission")
    parser.add_argument("--short", type=int, default=600, help="short conversations, which come first (default 600)")
    parser.add_argument("--long", type=int, default=30, help="long conversations (default 30)")
    given = parser.parse_args()
    fixed = []
    for concurrency in (*FIXED, None):
        took, slowest, cached = uvloop.run(seconds(given.short, given.long, concurrency))
        label = "by the KV cache" if concurrency is None else f"{concurrency:3} rollouts at a time"
        print(f"{label}: {took:.0f} s, the slowest rollout {slowest:.0f} s, {cached:.1%} of prompts cached", flush=True)
        if concurrency is not None:
            fixed.append(took)
    print(f"throughput to the best fixed number {min(fixed) / took:.2f}")


if __name__ == "__main__":
    main()
