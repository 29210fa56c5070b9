"""python -m benchmarks.affinity: how much of their prompts two replicas have in their cache, with and without affinity.

Five-turn sessions against two replicas of `simulated_model`, whose prefix cache counts exactly what an engine's would
hold. The agent runs in this process: once with calls that go to the queue group, once with calls that are routed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import EXPIRES_S, RoutedCalls, Routes
from gymq.cluster.launch import Cluster
from gymq.execution.attempts import Attempts
from gymq.execution.loading.building import build
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Outcome, Task, VerifiedRollout

TURNS = 5
IN_FLIGHT = 64
HERE = Path(__file__).parent


def instances(replicas: int, latency_s: float) -> list[Instance]:
    model: dict[str, Any] = {"num_workers": replicas, "skill": 1.0, "token_ids": True, "output_tokens": 200}
    model |= {"cache_blocks": 1_000_000, "latency_s": latency_s}
    return [
        Instance("policy", "models", "simulated_model", model),
        Instance("counter", "resources", str(HERE / "stateful.py")),
    ]


def task(number: int) -> Task:
    """Four tool calls and an answer, behind a prompt that no other session has."""
    add = [{"call": {"name": "add", "arguments": {"amount": 1}}}]
    script = [*[add] * (TURNS - 1), [{"text": "four"}]]
    params = {
        "input": [{"role": "user", "content": f"Session {number}. " + "Add one, four times. " * 50}],
        "metadata": {"simulated_solution": json.dumps(script)},
    }
    row = json.dumps({"responses_create_params": params}).encode()
    return Task(run="affinity", task_index=number, rollout_index=0, agent="agent", row=row, timeout_s=600.0)


async def hit_rate(sessions: int, replicas: int, *, affinity: bool, latency_s: float) -> float:
    """The share of all prompt tokens that were found in the cache of the replica that was asked."""
    references = {
        "model_server": {"type": "responses_api_models", "name": "policy"},
        "resources_server": {"type": "resources_servers", "name": "counter"},
    }
    agent: Any = build(Instance("agent", "agents", "simple_agent", references))
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        async with Cluster(instances(replicas, latency_s), folder=Path(folder), log_level="warning") as cluster:
            bus = await Bus.connect(cluster.url, role="operator", name="benchmark")
            calls: Any = Calls(bus)
            if affinity:
                routes = Routes(bus)
                await routes.start()
                calls = RoutedCalls(calls, routes)
                await asyncio.sleep(EXPIRES_S / 2)  # until all replicas have published their load
            attempts = Attempts(bus, calls, agent, worker="benchmark")
            slots = asyncio.Semaphore(IN_FLIGHT)

            async def roll_out(number: int) -> Outcome:
                async with slots:
                    outcome, journal = await attempts.outcome(task(number), 1)
                    if journal is not None:
                        await journal.drop()
                    return outcome

            outcomes = await asyncio.gather(*(roll_out(number) for number in range(sessions)))
            await bus.close()
    usages = [
        outcome.response["usage"]
        for outcome in outcomes
        if isinstance(outcome, VerifiedRollout) and outcome.reward == 1
    ]
    if len(usages) != sessions:
        raise SystemExit(f"{sessions - len(usages)} of {sessions} sessions went wrong")
    cached = sum(usage["input_tokens_details"]["cached_tokens"] for usage in usages)
    return float(cached / sum(usage["input_tokens"] for usage in usages))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.affinity")
    parser.add_argument("--sessions", type=int, default=400)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds a reply takes (default 0.05)")
    given = parser.parse_args()
    for affinity in (False, True):
        rate = uvloop.run(hit_rate(given.sessions, given.replicas, affinity=affinity, latency_s=given.latency))
        label = "with" if affinity else "without"
        print(f"{label} affinity: {rate:.1%} of the prompt tokens were in the cache", flush=True)


if __name__ == "__main__":
    main()
