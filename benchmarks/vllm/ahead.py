"""How much wall time does a training save whose rollouts run ahead of the updates?

.venv-vllm/bin/python -m benchmarks.vllm.ahead --seeds 3

Trains the tiny policy of examples/train_tiny twice at the same time, each on an engine of its own: with the rollouts of
a step made after the update before it, and while it runs. Both have the same load beside them, and the same share of
the cores for each busy process. Prints the reward of both, means of five steps, and after which part of the first
one's time the second one has its reward.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any

from gymq.cluster.launch import Cluster

sys.path.append(str(Path(__file__).parents[2] / "examples" / "train_tiny"))
from curve import smoothed
from train import configuration

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_tiny"


async def train(url: str, folder: Path, *arguments: object) -> dict[str, Any]:
    """Run the example; return its result."""
    command = [str(EXAMPLE / "train.py"), "--nats", url, "--output", folder, "--evaluation-samples", 1, *arguments]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, command),
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if await process.wait():
        raise SystemExit(f"the training in {folder} failed")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def share_of_time(first: dict[str, Any], second: dict[str, Any]) -> float | None:
    """Return after which part of the first training's time the second one had its reward; None: never."""
    reward = smoothed(first["rewards"])[-1]
    times = zip(smoothed(second["rewards"]), accumulate(second["seconds"]), strict=True)
    reached = next((seconds for mean, seconds in times if mean >= reward), None)
    return None if reached is None else reached / sum(first["seconds"])


async def compare(given: argparse.Namespace, folder: Path) -> None:
    shares: list[float] = []
    async with AsyncExitStack() as stack:
        clusters = [
            await stack.enter_async_context(
                Cluster(configuration().instances, folder=folder / f"cluster-{side}", log_level="error")
            )
            for side in range(2)
        ]
        for seed in range(given.seeds):
            settings = (
                "--seed",
                seed,
                "--steps",
                given.steps,
                "--learning-rate",
                given.rate,
                "--prompts",
                given.prompts,
            )
            first, second = await asyncio.gather(
                train(clusters[0].url, folder / f"{seed}-0", "--ahead", 0, *settings),
                train(clusters[1].url, folder / f"{seed}-1", "--ahead", given.ahead, *settings),
            )
            share = share_of_time(first, second)
            shares += [] if share is None else [share]
            print(
                f"seed {seed}: reward {smoothed(first['rewards'])[-1]:.3f} in {sum(first['seconds']):.0f} s, ahead "
                f"{smoothed(second['rewards'])[-1]:.3f} in {sum(second['seconds']):.0f} s, "
                f"{'never there' if share is None else f'there in {share:.2f} of the time'}; "
                f"load {os.getloadavg()[0]:.0f}",
                flush=True,
            )
    if shares:
        print(f"there in {statistics.median(shares):.2f} of the time, median of {len(shares)} of {given.seeds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--prompts", type=int, default=32, help="tasks of a step, each with 8 rollouts")
    parser.add_argument("--ahead", type=int, default=1, help="steps whose rollouts are made ahead")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of both")
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        asyncio.run(compare(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
