"""python -m benchmarks [--floor] [WORKLOAD …]: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import uvloop

from benchmarks import endpoint, floor, ours
from benchmarks.measure import Measured
from benchmarks.workloads import WORKLOADS, Workload, chosen
from gymq.defaults import Layout

Runner = Callable[[Workload, Path], Coroutine[Any, Any, Measured]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="gymq next to bare nats-py")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--floor", action="store_true", help="print one line a workload, ending with its ratio")
    parser.add_argument("--layout", choices=get_args(Layout), default="kinds", help="of gymq's processes")
    parser.add_argument("--pairs", type=int, default=3, help="alternating runs of floor and gymq (default 3)")
    arguments = parser.parse_args()
    for workload in chosen(parser, arguments.workloads or list(WORKLOADS)):
        _compare(replace(workload, layout=arguments.layout), arguments.pairs, brief=arguments.floor)


def _compare(workload: Workload, pairs: int, *, brief: bool) -> None:
    floors, owns = [], []
    for _ in range(pairs):
        floors.append(_once(floor.run, workload))
        owns.append(_once(endpoint.run if workload.over_http else ours.run, workload))
    ratios = [own.cpu_s / bare.cpu_s for own, bare in zip(owns, floors, strict=True)]
    own, bare = _middle(owns), _middle(floors)
    if not brief:
        print(f"\n{workload.name}: {workload.what}; {workload.rollouts} rollouts, {workload.window} in flight")
        print("           rollouts/s   CPU ms/rollout   p50 ms   p99 ms   peak MiB")
        for label, measured in (("floor", bare), ("gymq", own)):
            latency = [f"{measured.latency_ms(q):8.1f}" if measured.latencies_s else "       -" for q in (0.5, 0.99)]
            print(
                f"  {label:7}  {measured.per_second:10,.0f}   {measured.cpu_ms_per_rollout:14.3f} {' '.join(latency)}"
                f"   {measured.peak_bytes / 2**20:8,.0f}"
            )
    print(
        f"{workload.name}: CPU per rollout {own.cpu_ms_per_rollout:.3f} ms, floor {bare.cpu_ms_per_rollout:.3f} ms, "
        f"{own.per_second:,.0f} and {bare.per_second:,.0f} rollouts/s, ratio {statistics.median(ratios):.2f}",
        flush=True,
    )


def _once(runner: Runner, workload: Workload) -> Measured:
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        return uvloop.run(runner(workload, Path(folder)))


def _middle(measured: list[Measured]) -> Measured:
    return sorted(measured, key=lambda one: one.cpu_s)[len(measured) // 2]


if __name__ == "__main__":
    main()
