"""python -m benchmarks.verdicts [NAME …]: the CPU time of a verdict, for environments that compute their rewards."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterable

import psutil

from gymq.execution.loading.registry import WorkerNotFound, worker_names
from gymq.execution.loading.worker_source import WorkerSource, find_worker
from gymq.ext.audit.gold import play, read_gold
from gymq.resources import Resources
from gymq.testing import Harness

ROUNDS = 20
WARM_UP = 3
LIMIT_MS = 10.0


def main() -> None:
    """Print a table; the exit status is 1 if a median is above 10 ms."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description="the CPU time of a verdict")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that need no judge, sandbox or tools")
    names = parser.parse_args().names
    chosen = names or worker_names("resources")
    print(f"{'environment':46} {'median ms':>10} {'mean ms':>10}")
    above = False
    for name in chosen:
        try:
            source = find_worker(name, ["resources"])
        except WorkerNotFound:
            continue  # only a base of others
        assert issubclass(source.cls, Resources)
        if names or (source.cls.deterministic and not source.cls.needs and not source.cls.tools):
            used = asyncio.run(_measured(source))
            above = above or statistics.median(used) > LIMIT_MS
            print(f"{name:46} {statistics.median(used):10.2f} {statistics.fmean(used):10.2f}", flush=True)
    raise SystemExit(int(above))


async def _measured(source: WorkerSource) -> list[float]:
    """Return the milliseconds of CPU of each verdict on a correct reply, of this process and those that it starts."""
    assert issubclass(source.cls, Resources)
    rows = read_gold(source)
    used = []
    async with Harness(source.cls) as env:
        for number in range(WARM_UP + ROUNDS):
            for row in rows:
                session = await env.session(row.row)
                response = await play(row.gold.actions, session, has_tools=False)
                processes = [child.pid for child in psutil.Process().children(recursive=True)]
                before = time.process_time() + _cpu_s(processes)
                await session.verify(row.row, response)
                after = time.process_time() + _cpu_s(processes)
                if number >= WARM_UP:
                    used.append(1000 * (after - before))
    return used


def _cpu_s(processes: Iterable[int]) -> float:
    """Return the CPU seconds of processes by Linux's clock for each, as `clock_getcpuclockid` names it.

    psutil's have steps of 10 ms, which is what a verdict may take.
    """
    return sum(time.clock_gettime(~process << 3 | 2) for process in processes)


if __name__ == "__main__":
    main()
