"""How many rollouts does a training need for the same reward, if it chooses its tasks?

.venv-vllm/bin/python -m benchmarks.vllm.varied --seeds 3

Trains the tiny policy of examples/train_tiny twice for each seed: on tasks as they come, and with `--varied`, which
ends after a share of the rollouts of the other. Prints the mean reward before and after of other draws of the tasks
that it trains on: held-out sums are hardly learned.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "examples" / "train_tiny" / "train.py"
EVALUATION = ("--evaluation-draws", 192, "--evaluation-samples", 16)


@dataclass
class Trained:
    """What a training came to: rewards of the evaluations, and rollouts without those of them."""

    before: float
    after: float
    rollouts: int


def train(folder: Path, *arguments: object) -> Trained:
    common = ("--ahead", 0, *EVALUATION, "--output", folder)
    subprocess.run([sys.executable, TRAIN, *map(str, (*common, *arguments))], stdout=subprocess.DEVNULL, check=True)
    result = json.loads((folder / "result.json").read_text())
    before, after = (statistics.fmean(result[name].values()) for name in ("before", "after"))
    return Trained(before, after, sum(result["rollouts"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.7, help="of the rollouts, with --varied")
    given = parser.parse_args()
    both: dict[str, list[Trained]] = {"as they come": [], "varied": []}
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        for seed in range(given.seeds):
            plain = train(Path(folder) / f"plain-{seed}", "--seed", seed, "--steps", given.steps)
            most = int(given.share * plain.rollouts)
            varied = train(Path(folder) / f"varied-{seed}", "--seed", seed, "--varied", "--rollouts", most)
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
