"""How many rollouts does a training need for the same reward, if it chooses its tasks?

.venv-vllm/bin/python -m benchmarks.vllm.varied --seeds 3
.venv-vllm/bin/python -m benchmarks.vllm.varied --seeds 3 --out-of-reach 0.6 --groups 14

Trains the tiny policy of examples/train_tiny twice for each seed: on tasks as they come, and with `--varied`, which
ends after a share of the rollouts of the other. Prints the mean reward before and after of other draws of the tasks
that it trains on: held-out sums are hardly learned. With `--out-of-reach`, such a share of the tasks are sums of two
digits, which the policy never gets right; they are not in the mean.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_tiny"
EVALUATION = ("--evaluation-draws", 192, "--evaluation-samples", 16)
MOST_STEPS = 1000  # the number of rollouts ends it
OUT_OF_REACH = [(a, b) for a in range(40, 96, 7) for b in range(41, 97, 7)]


@dataclass
class Trained:
    """What a training came to: rewards of the evaluations, and rollouts without those of them."""

    before: float
    after: float
    rollouts: int


def train(folder: Path, out_of_reach: float, *arguments: object) -> Trained:
    """Run the example in this process, and say nothing."""
    sys.path.append(str(EXAMPLE))
    import tasks
    import train as example

    draw = tasks.Tasks.draw

    def mixed(self: tasks.Tasks, count: int) -> Iterator[tasks.Row]:
        for _ in range(count):
            if self._chance.random() < out_of_reach:
                # Means are those of the example's kinds.
                yield {**tasks._sum(*self._chance.choice(OUT_OF_REACH)), "kind": "out of reach"}
            else:
                yield from draw(self, 1)

    if out_of_reach:
        tasks.Tasks.draw = mixed  # type: ignore[method-assign]
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.argv[1:] = map(str, ("--ahead", 0, *EVALUATION, "--output", folder, *arguments))
    example.main()
    result = json.loads((folder / "result.json").read_text())
    before, after = (statistics.fmean(result[name].values()) for name in ("before", "after"))
    return Trained(before, after, sum(result["rollouts"]))


def _train_in(pool: Executor, folder: Path, out_of_reach: float, seed: int, name: str, *arguments: object) -> Trained:
    """Train in a process of its own."""
    return pool.submit(train, folder / f"{name}-{seed}", out_of_reach, "--seed", seed, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.7, help="of the rollouts, with --varied")
    parser.add_argument("--groups", type=int, default=32, help="that vary, of a step, with --varied")
    parser.add_argument("--out-of-reach", type=float, default=0.0, help="share of the tasks that the policy cannot do")
    given = parser.parse_args()
    both: dict[str, list[Trained]] = {"as they come": [], "varied": []}
    with (
        tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        for seed in range(given.seeds):
            train_with = functools.partial(_train_in, pool, Path(folder), given.out_of_reach, seed)
            plain = train_with("plain", "--steps", given.steps)
            most = int(given.share * plain.rollouts)
            varied = train_with(
                "varied", "--steps", MOST_STEPS, "--varied", "--prompts", given.groups, "--rollouts", most
            )
            for (name, all_), one in zip(both.items(), (plain, varied), strict=True):
                all_.append(one)
                print(
                    f"seed {seed}, {name}: {one.before:.3f} to {one.after:.3f} in {one.rollouts:,} rollouts", flush=True
                )
    for name, all_ in both.items():
        after, rollouts = (
            statistics.fmean(values) for values in ([one.after for one in all_], [one.rollouts for one in all_])
        )
        print(f"mean of {given.seeds}, {name}: {after:.3f} in {rollouts:,.0f} rollouts")


if __name__ == "__main__":
    main()
