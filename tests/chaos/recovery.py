"""`python -m tests.chaos.recovery`: how many seconds a death costs the rollouts that are in work at that moment.

Twenty rollouts of seven model calls of half a second, with a tool call after each but the last, are made with and
without the death of one process in their midst. The difference is printed; docs/reliability.md sums it up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

from gymq.protocol.messages import VerifiedRollout

from .rows import row
from .running_cluster import RunningCluster, environment, running
from .scenario import agent_spec

NUM_ROWS = 20
ACK_WAIT_S = 10.0
FROZEN_S = 15.0
DEATHS = (
    ("nobody", "", "solver_replay", 0.0),
    ("agent killed", "solver_replay-0", "solver_replay", 0.0),
    ("agent frozen", "solver_replay-0", "solver_replay", FROZEN_S),
    ("model killed", "policy-0", "solver_replay", 0.0),
    ("model frozen", "policy-0", "solver_replay", FROZEN_S),
    ("resources killed, session replayable", "replayable-0", "solver_replay", 0.0),
    ("resources killed, session not replayable", "restarting-0", "solver_restart", 0.0),
    ("resources frozen, session replayable", "replayable-0", "solver_replay", FROZEN_S),
    ("services killed", "services", "solver_replay", 0.0),
    ("NATS server killed", "nats", "solver_replay", 0.0),
)


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="recovery-"))
    workers = [
        environment("replayable", "chain.py:Replayable", folder, num_workers=2),
        environment("restarting", "chain.py:Restarting", folder, num_workers=2),
        agent_spec("solver_replay", "replayable", num_workers=2),
        agent_spec("solver_restart", "restarting"),
    ]
    async with running(folder, workers, ack_wait_s=ACK_WAIT_S, num_models=2) as cluster:
        undisturbed = 0.0
        for number, (what, victim, agent, frozen_s) in enumerate(DEATHS):
            seconds, calls = await measure(cluster, f"run{number}", victim, agent, frozen_s)
            undisturbed = undisturbed or seconds
            repeated = calls - 7 * NUM_ROWS
            print(f"{what}: {seconds - undisturbed:+.1f} s, {repeated} model calls more than needed", flush=True)


async def measure(cluster: RunningCluster, name: str, victim: str, agent: str, frozen_s: float) -> tuple[float, int]:
    """Seconds until the last rollout is stored, and model calls."""
    rows = [row(agent, str(number), values=[1] * 6, latencies_s=[0.5]) for number in range(NUM_ROWS)]
    before = len(cluster.model_calls())
    started = time.monotonic()
    collecting = asyncio.create_task(cluster.collect(name, rows))
    await cluster.until_called(before + 2 * NUM_ROWS)
    if victim:
        pid = cluster.pid(victim)
        os.kill(pid, signal.SIGSTOP if frozen_s else signal.SIGKILL)
        if frozen_s:
            asyncio.get_running_loop().call_later(frozen_s, os.kill, pid, signal.SIGCONT)
    outcomes = await collecting
    seconds = time.monotonic() - started
    assert [outcome.reward for outcome in outcomes if isinstance(outcome, VerifiedRollout)] == [1.0] * NUM_ROWS
    await asyncio.sleep(frozen_s)
    return seconds, len(cluster.model_calls()) - before


if __name__ == "__main__":
    asyncio.run(main())
