"""How many rollouts does a training need for the same reward, if it chooses its tasks?

.venv-vllm/bin/python -m benchmarks.vllm.varied --seeds 3
.venv-vllm/bin/python -m benchmarks.vllm.varied --seeds 3 --out-of-reach 0.6 --groups 14

Trains the tiny policy of examples/train_tiny twice for each seed: on tasks as they come, and with `--varied`, which
ends after a share of the rollouts of the other. Prints the mean reward on other draws of the tasks that it trains on:
held-out sums are hardly learned. With `--varied` it is measured after each tenth of the rollouts of the other, from
half of them on. The last line has the first of these at which the mean of the seeds is the final mean of the other.
With `--out-of-reach`, such a share of the tasks are sums of two digits, which the policy never gets right; they are not
in the mean.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_tiny"
EVALUATION = ("--evaluation-draws", 192, "--evaluation-samples", 16)
MOST_STEPS = 1000  # the number of rollouts ends it
OUT_OF_REACH = [(a, b) for a in range(40, 96, 7) for b in range(41, 97, 7)]


class Evaluated(NamedTuple):
    """The mean reward of an evaluation, and the rollouts that were trained on until then."""

    rollouts: float
    reward: float


def train(folder: Path, out_of_reach: float, evaluate_at: Sequence[int], *arguments: object) -> list[Evaluated]:
    """Run the example in this process, and say nothing.

    Args:
        evaluate_at: numbers of rollouts after which the policy is evaluated, besides before and after the training.
    """
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

    at, between = list(evaluate_at), []

    class Training(example.Training):
        async def _push(self, step: int) -> None:
            await super()._push(step)
            rollouts = sum(self._result.rollouts)
            if at and rollouts >= at[0]:
                del at[0]
                rewards = await self._evaluate(MOST_STEPS + 1 + step)
                between.append(Evaluated(rollouts, example.mean(rewards)))

    example.Training = Training  # type: ignore[misc]
    if out_of_reach:
        tasks.Tasks.draw = mixed  # type: ignore[method-assign]
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.argv[1:] = map(str, ("--ahead", 0, *EVALUATION, "--output", folder, *arguments))
    example.main()
    result = json.loads((folder / "result.json").read_text())
    before, after = (example.mean(result[name]) for name in ("before", "after"))
    return [Evaluated(0, before), *between, Evaluated(sum(result["rollouts"]), after)]


def _train_in(
    pool: Executor, folder: Path, out_of_reach: float, seed: int, name: str, at: Sequence[int], *arguments: object
) -> list[Evaluated]:
    """Train in a process of its own, and print what came of it."""
    task = pool.submit(train, folder / f"{name}-{seed}", out_of_reach, at, "--seed", seed, *arguments)
    curve = task.result()
    print(f"seed {seed}, {name}: {_text(curve)}", flush=True)
    return curve


def _text(curve: Sequence[Evaluated]) -> str:
    return ", ".join(f"{one.reward:.3f} after {one.rollouts:,.0f}" for one in curve)


def _mean(curves: Sequence[Sequence[Evaluated]]) -> list[Evaluated]:
    return [
        Evaluated(*(statistics.fmean(values) for values in zip(*of_all, strict=True)))
        for of_all in zip(*curves, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.8, help="of the rollouts, with --varied, at most")
    parser.add_argument("--groups", type=int, default=32, help="that vary, of a step, with --varied")
    parser.add_argument("--out-of-reach", type=float, default=0.0, help="share of the tasks that the policy cannot do")
    given = parser.parse_args()
    plain: list[list[Evaluated]] = []
    varied: list[list[Evaluated]] = []
    with (
        tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            train_with = functools.partial(_train_in, pool, Path(folder), given.out_of_reach, seed)
            plain.append(train_with("as they come", [], "--steps", given.steps))
            all_rollouts = plain[-1][-1].rollouts
            most = int(given.share * all_rollouts)
            at = [rollouts for tenth in range(5, 10) if (rollouts := int(tenth * all_rollouts / 10)) < most]
            of_groups = ("--steps", MOST_STEPS, "--varied", "--prompts", given.groups, "--rollouts", most)
            varied.append(train_with("varied", at, *of_groups))
    final, curve = _mean(plain)[-1], _mean(varied)
    print(f"mean of {given.seeds}, as they come: {_text(_mean(plain))}")
    print(f"mean of {given.seeds}, varied: {_text(curve)}")
    reached = next((one for one in curve if one.reward >= final.reward), None)
    if reached is None:
        print(f"{final.reward:.3f} is not reached in {curve[-1].rollouts:,.0f} rollouts")
    else:
        fewer = 1 - reached.rollouts / final.rollouts
        print(f"{final.reward:.3f} is reached in {reached.rollouts:,.0f} rollouts, {fewer:.0%} fewer")


if __name__ == "__main__":
    main()
