"""Shows the state of a cluster in a terminal: the work of `gymq status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from rich.filesize import decimal
from rich.text import Text

from gymq.cli.shared.cluster import STORE, connected, running_url
from gymq.cluster.server.store import Store
from gymq.ext.operate.cluster_status import ClusterStatus, StreamState, read_status
from gymq.ext.shared.cluster_state import QueueState
from gymq.ext.shared.run_overview import run_table
from gymq.redaction import redact
from gymq.render import (
    Listing,
    listing,
    listing_console,
    printable,
    shown_count,
    shown_number,
    shown_seconds,
)


async def show_status(nats: str | None, as_json: bool) -> int:
    url = await running_url(nats)
    record = None if nats else Store(STORE).read_record()
    async with connected(url, name="gymq status") as bus:
        found = await read_status(bus, url, record)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        _print(found, url)
    return 0


def _print(found: ClusterStatus, url: str) -> None:
    console = listing_console()
    server = found.server
    parts = [f"NATS server {server.version or ''}".strip() + f" at {redact(url)}"]
    if server.uptime_s is not None:
        parts.append(f"up {shown_seconds(server.uptime_s)}")
    parts.append(f"{decimal(server.storage_bytes)} stored")
    console.print(printable(", ".join(parts)))
    if found.workers:
        console.print()
        console.print(_workers(found))
    console.print()
    busy = [queue for queue in found.queues if queue.waiting or queue.in_flight]
    if busy:
        console.print(_queues(busy, num_idle=len(found.queues) - len(busy)))
        console.print()
    else:
        console.print(Text(f"queues: all {len(found.queues)} are empty"))
    console.print(_streams(found.streams))
    if found.runs:
        console.print()
        console.print(run_table(found.runs, num_runs=found.num_runs))
    for line in _remarks(found):
        console.print(line, soft_wrap=True)


def _remarks(found: ClusterStatus) -> Iterator[Text]:
    if not found.workers:
        yield Text("no workers: `gymq up --config FILE` starts some", "yellow")
    if not found.runs:
        yield Text("no runs yet: `gymq collect` starts one")
    served = {worker.name for worker in found.workers if worker.kind == "agents"}
    for queue in found.queues:
        if queue.agent and queue.waiting and queue.agent not in served:
            yield Text(f"{queue.waiting:,} tasks wait for the agent {queue.agent}, but no worker serves it", "yellow")
    for blocked in sorted({worker.blocked for worker in found.workers} - {""}):
        yield printable(blocked, "yellow")
    for name, weakness in sorted({(worker.name, worker.sandbox_weakness) for worker in found.workers}):
        if weakness:
            yield printable(f"{name}: its sandbox is weaker, {weakness}", "yellow")
    for model, oddities in _oddities(found).items():
        for kind, count in oddities.most_common():
            yield printable(f"{model}: {count:,} {kind}", "yellow")
    if found.num_dead_letters:
        yield Text(f"dead letters: {found.num_dead_letters:,}; `gymq dead-letters list` lists them", "yellow")


def _oddities(found: ClusterStatus) -> dict[str, Counter[str]]:
    """Return what each model read although it was slightly off, all its processes together."""
    models: dict[str, Counter[str]] = {}
    for worker in found.workers:
        models.setdefault(worker.name, Counter()).update(worker.oddities)
    return models


def _workers(found: ClusterStatus) -> Listing:
    numbers = ("load", "sessions", "requests", "errors")
    table = listing(
        "workers",
        "instance",
        "implementation",
        "process",
        *numbers,
        numbers=numbers,
        names=("implementation", "process"),
        spare=("implementation", "process"),
    )
    for worker in found.workers:
        # The id without its random end says kind and process number.
        process = worker.worker.rpartition("-")[0] or worker.worker
        table.add_row(
            printable(worker.name),
            printable(worker.implementation.rpartition("/")[2]),
            printable(process),
            f"{worker.load:,}",
            shown_number(worker.sessions, ","),
            f"{worker.requests:,}",
            shown_count(worker.errors),
        )
    return table


def _queues(queues: Sequence[QueueState], *, num_idle: int) -> Listing:
    numbers = ("waiting", "in flight", "delivered again")
    caption = f"{num_idle:,} more are empty" if num_idle else None
    table = listing("queues", "queue", *numbers, numbers=numbers, caption=caption)
    for queue in queues:
        name = f"{queue.consumer} ({queue.stream})"
        if queue.agent is not None:
            name = f"{'urgent ' if queue.urgent else ''}tasks of {queue.agent}"
        table.add_row(printable(name), f"{queue.waiting:,}", f"{queue.in_flight:,}", f"{queue.redelivered:,}")
    return table


def _streams(streams: Sequence[StreamState]) -> Text:
    """Return the messages in each stream as one sentence."""
    stored = [f"{one.name} {one.messages:,} ({decimal(one.num_bytes)})" for one in streams if one.messages]
    empty = [one.name for one in streams if not one.messages]
    parts = [", ".join(stored)] if stored else []
    parts += [f"empty: {', '.join(empty)}"] if empty else []
    return Text(f"streams: {'; '.join(parts)}")
