"""python -m benchmarks.compare BASE [WORKLOAD …]: what a rollout costs now, next to another version of gymq.

Each version runs the workloads of `python -m benchmarks --floor` in turn, so that both meet the same minutes. What is
compared is the ratio to the floor of the same run, which the load of the machine moves much less than milliseconds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.workloads import chosen

ROOT = Path(__file__).parent.parent
MAIN = ("single-step", "five-turns", "long-rollout", "http-single-step")
MOST = 1.05


def main() -> None:
    """Compare; the status is 1 if a workload costs more than `MOST` times what it did."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("base", help="a commit, or a wheel of gymq")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {', '.join(MAIN)}")
    parser.add_argument("--pairs", type=int, default=3, help="alternating runs of both versions (default 3)")
    arguments = parser.parse_args()
    names = [workload.name for workload in chosen(parser, arguments.workloads or MAIN)]
    dearer = []
    with _unpacked(arguments.base) as base:
        for name in names:
            pairs = [(_ratio(base, name), _ratio(ROOT, name)) for _ in range(arguments.pairs)]
            times = sorted(now / before for before, now in pairs)
            middle = statistics.median(times)
            print(
                f"{name}: {statistics.median(before for before, _ in pairs):.2f} of the floor in {arguments.base}, "
                f"{statistics.median(now for _, now in pairs):.2f} now: {middle:.3f} times "
                f"({times[0]:.3f} to {times[-1]:.3f})",
                flush=True,
            )
            if middle > MOST:
                dearer.append(name)
    if dearer:
        sys.exit(f"more than {MOST} times as dear as in {arguments.base}: {', '.join(dearer)}")


@contextmanager
def _unpacked(base: str) -> Iterator[Path]:
    """Put a version into a folder of its own for the block: `gymq`, its workers and the benchmarks."""
    with tempfile.TemporaryDirectory(prefix="gymq-base-") as folder:
        root = Path(folder) / "base"
        if base.endswith(".whl"):
            zipfile.ZipFile(base).extractall(root)
            shutil.copytree(ROOT / "benchmarks", root / "benchmarks")
            yield root
            return
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(root), base], check=True)
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def _ratio(root: Path, name: str) -> float:
    """Run a workload with the version in a folder; return its cost as a multiple of the floor's."""
    command = [sys.executable, "-m", "benchmarks", "--floor", "--pairs", "1", name]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    found = re.search(r"ratio (\d+\.\d+)$", done.stdout.strip())
    if found is None:
        raise RuntimeError(f"{root}: no ratio in {done.stdout!r}")
    return float(found[1])


if __name__ == "__main__":
    main()
