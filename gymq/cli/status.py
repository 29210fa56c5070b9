"""gymq status"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gymq.cli.cluster import STORE, connected, running_url
from gymq.cli.errors import told_plainly
from gymq.cli.listing import listing
from gymq.cli.printable import first_words, printable
from gymq.cli.run_table import run_table
from gymq.cli.units import shown_bytes, shown_seconds, shown_time
from gymq.cluster_status import ClusterStatus, read_status
from gymq.server import redact
from gymq.server.store import Store

_WORDS = 200


def status(
    *,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    json: bool = False,
) -> int:
    """Show what goes on in a cluster: server, workers, queues, streams, runs and dead letters.

    Asks the cluster that runs in this folder (`gymq up` starts one), or the one at --nats.

    Args:
        nats: URL of the cluster's NATS server.
        json: print everything as one JSON object.
    """
    with told_plainly():
        return asyncio.run(_status(nats, json))


async def _status(nats: str | None, as_json: bool) -> int:
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
    console = Console()
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
        yield Text(f"dead letters: {found.num_dead_letters:,} (see `gymq dead-letters list`), the newest:", "yellow")
    for letter in found.dead_letters:
        yield printable(f"  {shown_time(letter.at)} {letter.subject}: ") + first_words(letter.reason, _WORDS)


def _workers(found: ClusterStatus) -> Table:
    numbers = ("load", "sessions", "requests", "errors")
    table = listing("workers", "instance", "implementation", "process", *numbers, numbers=numbers)
    for worker in found.workers:
        # The id without its random end says kind and process number.
        process = worker.worker.rpartition("-")[0] or worker.worker
        table.add_row(
            printable(worker.name),
            printable(worker.implementation.rpartition("/")[2]),
            printable(process),
            f"{worker.load:,}",
            "-" if worker.sessions is None else f"{worker.sessions:,}",
            f"{worker.requests:,}",
            f"{worker.errors:,}" if worker.errors else "-",
        )
    return table


def _queues(found: ClusterStatus) -> Table:
    numbers = ("waiting", "in hand", "delivered again")
    table = listing("queues", "queue", *numbers, numbers=numbers)
    for queue in found.queues:
        name = f"{queue.consumer} ({queue.stream})"
        if queue.agent is not None:
            name = f"{'urgent ' if queue.urgent else ''}tasks of {queue.agent}"
        table.add_row(printable(name), f"{queue.waiting:,}", f"{queue.in_hand:,}", f"{queue.delivered_again:,}")
    return table


def _streams(found: ClusterStatus) -> Table:
    table = listing("streams", "stream", "messages", "size", numbers=("messages", "size"))
    for stream in found.streams:
        table.add_row(stream.name, f"{stream.messages:,}", shown_bytes(stream.num_bytes))
    return table
