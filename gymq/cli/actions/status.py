"""The work of `gymq status`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.text import Text

from gymq.cli.shared.cluster import STORE, connected, running_url
from gymq.cli.shared.table import run_table
from gymq.cluster.server import redact
from gymq.cluster.server.store import Store
from gymq.render import (
    Listing,
    listing,
    listing_console,
    printable,
    shown_bytes,
    shown_count,
    shown_number,
    shown_seconds,
)
from gymq.runs.cluster_status import ClusterStatus, read_status


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
    parts.append(f"{shown_bytes(server.storage_bytes)} stored")
    console.print(printable(", ".join(parts)))
    tables = [_queues(found), _streams(found)]
    if found.workers:
        tables.insert(0, _workers(found))
    if found.runs:
        tables.append(run_table(found.runs, num_runs=found.num_runs))
    for table in tables:
        console.print()
        console.print(table)
    console.print()
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
    if found.num_dead_letters:
        yield Text(f"dead letters: {found.num_dead_letters:,}; `gymq dead-letters list` lists them", "yellow")


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


def _queues(found: ClusterStatus) -> Listing:
    numbers = ("waiting", "in flight", "delivered again")
    table = listing("queues", "queue", *numbers, numbers=numbers)
    for queue in found.queues:
        name = f"{queue.consumer} ({queue.stream})"
        if queue.agent is not None:
            name = f"{'urgent ' if queue.urgent else ''}tasks of {queue.agent}"
        table.add_row(printable(name), f"{queue.waiting:,}", f"{queue.in_flight:,}", f"{queue.redelivered:,}")
    return table


def _streams(found: ClusterStatus) -> Listing:
    table = listing("streams", "stream", "messages", "size", numbers=("messages", "size"))
    for stream in found.streams:
        table.add_row(stream.name, f"{stream.messages:,}", shown_bytes(stream.num_bytes))
    return table
