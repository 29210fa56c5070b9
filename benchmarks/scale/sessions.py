"""python -m benchmarks.scale.sessions: very many sessions that are busy at the same time.

Each session takes one step of 1 s after the other. The caller of all of them is this process, without model and agent.
Says how long steps take from the call to the answer, and whether each session stayed with the worker that holds it: a
session's steps are counted by the session, so a step elsewhere would be seen in its reward.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import uvloop

from benchmarks.scale.watched import Watched, watched
from gymq.bus.rpc.calls import Calls
from gymq.protocol import subjects
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Close, Seed, Seeded, ToolCall, ToolResult, Verified, Verify

TIMEOUT_S = 600.0
ROW = b'{"responses_create_params": {"input": []}}'
REPLY = {"output": [], "object": "response"}


async def busy(cluster: Watched, sessions: int, steps: int, step_s: float) -> None:
    calls = Calls(cluster.bus)
    latencies: list[float] = []
    workers: dict[str, int] = {}

    async def one(number: int) -> float:
        rollout = f"scale/{number}/0"
        seeded = await calls.call(subjects.SEED.of("stepping"), Seed(rollout=rollout, timeout_s=TIMEOUT_S, row=ROW))
        assert isinstance(seeded, Seeded)
        assert seeded.session is not None
        worker = seeded.session.split(".")[2]
        workers[worker] = workers.get(worker, 0) + 1
        await started.wait()
        for step in range(steps):
            call = ToolCall(
                rollout=rollout,
                timeout_s=TIMEOUT_S,
                number=step + 1,
                name="step",
                arguments=f'{{"duration_s": {step_s}}}',
            )
            begun = time.perf_counter()
            result = await calls.call(seeded.session, call)
            latencies.append(time.perf_counter() - begun)
            assert isinstance(result, ToolResult)
            assert result.status == 200, result.output
        verify = Verify(rollout=rollout, timeout_s=TIMEOUT_S, number=steps + 1, row=ROW, response=REPLY)
        verified = await calls.call(seeded.session, verify)
        assert isinstance(verified, Verified)
        await calls.send(seeded.session, Close(rollout=rollout, timeout_s=TIMEOUT_S))
        return verified.reward

    started = asyncio.Event()
    running = [asyncio.create_task(one(number)) for number in range(sessions)]
    while sum(workers.values()) < sessions:
        if any(task.done() for task in running):
            break
        await asyncio.sleep(0.1)
    before, begun = cluster.cpu_s(), time.perf_counter()
    started.set()
    rewards = await asyncio.gather(*running)
    wall = time.perf_counter() - begun
    spent = {name: seconds - before[name] for name, seconds in cluster.cpu_s().items()}
    wrong = sum(reward != steps for reward in rewards)
    latencies.sort()
    p50, p99 = (latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.99))
    print(f"{len(workers)} workers with {', '.join(map(str, workers.values()))} sessions; {wrong} with steps elsewhere")
    print(f"steps of {step_s:g} s: p50 {p50:.2f} s, p99 {p99:.2f} s, longest {latencies[-1]:.2f} s")
    print(f"{len(latencies):,} steps in {wall:.1f} s")
    per_step = {name: 1000 * seconds / len(latencies) for name, seconds in spent.items()}
    print("CPU ms a step: " + ", ".join(f"{name} {value:.2f}" for name, value in per_step.items()))


async def run(sessions: int, workers: int, steps: int, step_s: float) -> None:
    options = {"num_workers": workers}
    file = str(Path(__file__).parent / "stepping.py")
    async with watched([Instance("stepping", "resources", file, options)]) as cluster:
        await busy(cluster, sessions, steps, step_s)
        cluster.print_peaks()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=2048, help="in all (default 2048)")
    parser.add_argument("--workers", type=int, default=1, help="processes they are spread over (default 1)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--step", type=float, default=1.0, help="seconds a step takes (default 1)")
    given = parser.parse_args()
    uvloop.run(run(given.sessions, given.workers, given.steps, given.step))


if __name__ == "__main__":
    main()
