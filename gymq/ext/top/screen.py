"""The work of `gymq top`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from gymq.cli.shared.cluster import connected, running_url
from gymq.cli.shared.interrupts import until_interrupted
from gymq.ext.shared.cluster_state import Overview, read_overview
from gymq.ext.top.scrolled_screen import ScrolledScreen
from gymq.render import (
    Listing,
    listing,
    listing_console,
    printable,
    shown_classes,
    shown_count,
    shown_environments,
    shown_number,
)
from gymq.runs.collection.progress_view import Speed
from gymq.stats.intervals import Estimate


class Top(Overview, frozen=True, kw_only=True):
    """Figures that `gymq top` prints."""

    rollouts_per_s: float
    in_flight: int


async def show_once(interval: float, runs: int, nats: str | None, as_json: bool) -> int:
    speed = Speed()
    async with connected(await running_url(nats), name="gymq top") as bus:
        before = await read_overview(bus, time.time(), runs)
        speed.note(before.at, before.num_outcomes)
        await asyncio.sleep(interval)
        found = await read_overview(bus, time.time(), runs)
        speed.note(found.at, found.num_outcomes)
    if as_json:
        overview = {name: getattr(found, name) for name in Overview.__struct_fields__}
        top = Top(**overview, rollouts_per_s=_rate_of(speed) or 0.0, in_flight=in_flight(found))
        print(msgspec.json.encode(top).decode())
    else:
        listing_console().print(screen(found, _rate_of(speed)))
    return 0


async def watch(interval: float, runs: int, nats: str | None) -> None:
    """Show the cluster until Ctrl-C or `q`."""
    speed = Speed()
    with until_interrupted() as interrupt:
        async with connected(await running_url(nats), name="gymq top") as bus:
            with ScrolledScreen(interrupt) as shown:
                while True:
                    found = await read_overview(bus, time.time(), runs)
                    speed.note(found.at, found.num_outcomes)
                    shown.show(screen(found, _rate_of(speed)))
                    await asyncio.sleep(interval)


def _rate_of(speed: Speed) -> float | None:
    found = speed.per_second()
    return None if found is None else found[0]


def in_flight(found: Overview) -> int:
    """Return the number of tasks in flight at agents."""
    return sum(queue.in_flight for queue in found.queues)


def screen(found: Overview, per_second: float | None) -> RenderableType:
    """Return the display of one look."""
    waiting = sum(queue.waiting for queue in found.queues)
    rate = shown_number(per_second, ",.1f")
    line = f"{rate} rollouts/s   {in_flight(found):,} in flight   {waiting:,} waiting   {found.num_stored:,} stored"
    parts: list[RenderableType] = [Text(line, "bold"), Text("")]
    parts.append(_runs(found) if found.runs else Text("no runs yet: `gymq collect` starts one"))
    parts += [Text(""), _workers(found) if found.workers else Text("no workers responded", "yellow")]
    parts += list(_failures(found))
    return Group(*parts)


def _runs(found: Overview) -> Listing:
    numbers = ("rewarded", "failed", "reward", "pass@1", "pass@max")
    several = any(len(run.agents) > 1 for run in found.runs)
    caption = f"the newest {len(found.runs)} of {found.num_runs:,}" if found.num_runs > len(found.runs) else None
    table = listing(
        "runs",
        "run",
        *(["environment"] if several else []),
        *numbers,
        numbers=numbers,
        names=("environment",),
        spare=("pass@max", "pass@1"),
        caption=caption,
    )
    for run in found.runs:
        names = shown_environments(run.agents)
        of = "" if run.num_rollouts is None else f" of {run.num_rollouts:,}"
        if len(run.agents) != 1:
            # How many rollouts each of its environments will have is not known; how many it has in all is.
            rewarded, failed = f"{run.num_rewarded:,}{of}", sum(run.failures.values())
            reward = shown_number(run.mean_reward)
            environment = ["all" if run.agents else "-"] if several else []
            table.add_row(run.run, *environment, rewarded, shown_count(failed), reward, "-", "-")
            of = ""
        for name, agent in run.agents.items():
            failed = sum(agent.failures.values())
            best = _rate(agent.pass_at_k.get(agent.max_k))
            table.add_row(
                run.run,
                *([printable(names[name])] if several else []),
                f"{agent.rollouts:,}{of}",
                shown_count(failed),
                shown_number(None if agent.mean_reward is None else agent.mean_reward.value),
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


def _workers(found: Overview) -> Listing:
    numbers = ("processes", "load", "requests", "errors", "waiting")
    table = listing(
        "workers",
        "instance",
        "kind",
        *numbers,
        "relative",
        numbers=numbers,
        names=("kind", "relative"),
        spare=("kind", "processes", "relative"),
    )
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
            shown_count(errors),
            f"{waiting[name]:,}" if kind == "agents" and name in waiting else "",
            Text("█" * round(12 * loads[kind, name] / most), "cyan"),
        )
    return table


def _failures(found: Overview) -> Iterator[RenderableType]:
    counts: Counter[str] = Counter()
    for run in found.runs:
        counts.update(run.failures)
    if counts:
        yield Text(f"\nfailures of these runs: {shown_classes(counts)}", "yellow")
    if found.num_dead_letters:
        yield Text(f"dead letters: {found.num_dead_letters:,} (see `gymq dead-letters list`)", "yellow")
