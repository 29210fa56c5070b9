"""gymq top"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gymq.cli.cluster import connected, running_url
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.overview import Overview, read_overview
from gymq.running import Estimate

WINDOW_S = 30.0  # over which rollouts per second are counted
_BAR = 12  # characters


class Rates:
    """How fast outcomes are stored, from looks at the cluster."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def note(self, at: float, num_outcomes: int) -> None:
        """Remember a look.

        Args:
            at: seconds, on any clock.
            num_outcomes: stored until then.
        """
        self._looks.append((at, num_outcomes))
        while len(self._looks) > 2 and at - self._looks[0][0] > WINDOW_S:
            self._looks.popleft()

    def per_second(self) -> float | None:
        """Outcomes a second over the last half minute; None after a single look."""
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None


class Top(Overview, frozen=True, kw_only=True):
    """What `gymq top` tells."""

    rollouts_per_s: float
    in_flight: int


def top(
    *,
    once: bool = False,
    interval: Annotated[float, Parameter(validator=Number(gte=0.2, lte=3600))] = 1.0,
    runs: Annotated[int, Parameter(validator=Number(gte=1, lte=100))] = 5,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    json: bool = False,
) -> int:
    """Watch a cluster: rollouts per second, runs with pass@k, load of the workers, failures. Ctrl-C ends it.

    Args:
        once: look for one interval, tell, and end.
        interval: seconds between two looks.
        runs: how many of the newest runs to show.
        nats: URL of the cluster's NATS server.
        json: with --once: print everything as one JSON object.
    """
    with told_plainly():
        if json and not once:
            raise Refused("--json needs --once")
        if once or not Console().is_terminal:
            return asyncio.run(_once(interval, runs, nats, json))
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(interval, runs, nats))
        return 0


async def _once(interval: float, runs: int, nats: str | None, as_json: bool) -> int:
    rates = Rates()
    async with connected(await running_url(nats), name="gymq top") as bus:
        before = await read_overview(bus, time.time(), runs)
        rates.note(before.at, before.num_outcomes)
        await asyncio.sleep(interval)
        found = await read_overview(bus, time.time(), runs)
        rates.note(found.at, found.num_outcomes)
    if as_json:
        members = {name: getattr(found, name) for name in Overview.__struct_fields__}
        told = Top(**members, rollouts_per_s=rates.per_second() or 0.0, in_flight=in_flight(found))
        print(msgspec.json.encode(told).decode())
    else:
        Console().print(screen(found, rates.per_second()))
    return 0


async def _watch(interval: float, runs: int, nats: str | None) -> None:
    rates = Rates()
    async with connected(await running_url(nats), name="gymq top") as bus:
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                found = await read_overview(bus, time.time(), runs)
                rates.note(found.at, found.num_outcomes)
                live.update(screen(found, rates.per_second()), refresh=True)
                await asyncio.sleep(interval)


def in_flight(found: Overview) -> int:
    """Tasks that agents have in hand."""
    return sum(queue.in_hand for queue in found.queues)


def screen(found: Overview, per_second: float | None) -> RenderableType:
    """What is shown of one look."""
    waiting = sum(queue.waiting for queue in found.queues)
    rate = "-" if per_second is None else f"{per_second:,.1f}"
    line = f"{rate} rollouts/s   {in_flight(found):,} in flight   {waiting:,} waiting   {found.num_outcomes:,} stored"
    parts: list[RenderableType] = [Text(line, "bold"), Text("")]
    parts.append(_runs(found) if found.runs else Text("no runs yet: `gymq collect` starts one"))
    parts += [Text(""), _workers(found) if found.workers else Text("no worker answers", "yellow")]
    parts += list(_failures(found))
    return Group(*parts)


def _runs(found: Overview) -> Table:
    numbers = ("rewarded", "failed", "reward", "pass@1", "pass@max")
    several = any(len(run.agents) > 1 for run in found.runs)
    caption = f"the newest {len(found.runs)} of {found.num_runs:,}" if found.num_runs > len(found.runs) else None
    table = listing("runs", "run", *(["agent"] if several else []), *numbers, numbers=numbers, caption=caption)
    for run in found.runs:
        of = "" if run.num_rollouts is None else f" of {run.num_rollouts:,}"
        if not run.agents:
            table.add_row(run.run, *(["-"] if several else []), f"0{of}", *["-"] * 4)
        for name, agent in run.agents.items():
            failed = sum(agent.failures.values())
            best = _rate(agent.pass_at_k.get(agent.max_k))
            table.add_row(
                run.run,
                *([printable(name)] if several else []),
                f"{agent.rollouts:,}{of}",
                f"{failed:,}" if failed else "-",
                "-" if agent.mean_reward is None else f"{agent.mean_reward.value:.3f}",
                _rate(agent.pass_at_k.get(1)),
                f"{best} ({agent.max_k})" if agent.max_k > 1 else best,
            )
    return table


def _rate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    interval = estimate.interval
    around = "" if interval is None else f" [{interval.low:.0f}-{interval.high:.0f}]"
    return f"{estimate.value:.1f}{around}"


def _workers(found: Overview) -> Table:
    numbers = ("processes", "load", "requests", "errors", "waiting")
    table = listing("workers", "instance", "kind", *numbers, "", numbers=numbers)
    waiting = {queue.agent: 0 for queue in found.queues}
    for queue in found.queues:
        waiting[queue.agent] += queue.waiting
    names = sorted({(worker.kind, worker.name) for worker in found.workers})
    loads = {name: sum(worker.load for worker in found.workers if (worker.kind, worker.name) == name) for name in names}
    most = max(1, *loads.values())
    for kind, name in names:
        same = [worker for worker in found.workers if (worker.kind, worker.name) == (kind, name)]
        errors = sum(worker.errors for worker in same)
        table.add_row(
            printable(name),
            kind,
            f"{len(same):,}",
            f"{loads[kind, name]:,}",
            f"{sum(worker.requests for worker in same):,}",
            f"{errors:,}" if errors else "-",
            f"{waiting[name]:,}" if kind == "agents" and name in waiting else "",
            Text("█" * round(_BAR * loads[kind, name] / most), "cyan"),
        )
    return table


def _failures(found: Overview) -> Iterator[RenderableType]:
    counts: dict[str, int] = {}
    for run in found.runs:
        for failure_class, count in run.failures.items():
            counts[failure_class] = counts.get(failure_class, 0) + count
    if counts:
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))
        yield Text(f"\nfailures of these runs: {told}", "yellow")
    if found.num_dead_letters:
        yield Text(f"dead letters: {found.num_dead_letters:,} (see `gymq dead-letters list`)", "yellow")
