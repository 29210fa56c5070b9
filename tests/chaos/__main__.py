"""`python -m tests.chaos`: as many seeds as one likes. The last line says what was killed, lost, doubled, repeated."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import get_args

from gymq.defaults import Layout
from tests.releases.later import install_wheel, release

from .experiment import NoFaults, Releases, run
from .promises import Verdict, judge
from .scenario import Scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--single", type=int, default=Scenario.single, help="single-turn rollouts a seed")
    parser.add_argument("--stateful", type=int, default=Scenario.stateful, help="rollouts of many turns a seed")
    parser.add_argument("--turns", type=int, default=Scenario.turns, help="turns of each of those")
    parser.add_argument("--layout", choices=get_args(Layout), default="kinds")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument(
        "--mixed", action="store_true", help="processes of two wheels; those of even seeds begin with the later one"
    )
    given = parser.parse_args()
    verdicts: list[Verdict] = []
    kept = True
    wheels, this, later = Path(tempfile.mkdtemp(prefix="wheels-")), None, None
    if given.mixed:
        this = install_wheel(wheels / "this")
        later = release(wheels / "later", "oldest=1, newest=2")
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
        scenario = Scenario(seed, given.single, given.stateful, given.turns, given.layout)
        releases = Releases(this, later) if seed % 2 else Releases(later, this)
        try:
            verdict = judge(
                scenario,
                asyncio.run(
                    run(
                        scenario,
                        folder,
                        injector=NoFaults() if given.no_faults else None,
                        install=releases.install_next,
                    )
                ),
            )
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}; see {folder}", flush=True)
            kept = False
            continue
        print(f"seed {seed}: {verdict}" + ("" if verdict.kept else f"; see {folder}"), flush=True)
        verdicts.append(verdict)
        if verdict.kept:
            shutil.rmtree(folder)
        kept = kept and verdict.kept
    shutil.rmtree(wheels)
    print(f"{len(verdicts)} seeds, promises {'kept' if kept else 'BROKEN'}: {total(verdicts)}")
    return 0 if kept else 1


def total(verdicts: list[Verdict]) -> Verdict:
    """The sums over all runs."""
    sums = {
        field.name: sum((getattr(verdict, field.name) for verdict in verdicts), start=Counter())
        if field.name in ("faults", "failures")
        else sum(getattr(verdict, field.name) for verdict in verdicts)
        for field in fields(Verdict)
    }
    return Verdict(**sums)


if __name__ == "__main__":
    sys.exit(main())
