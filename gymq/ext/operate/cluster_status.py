"""The state of a cluster: its server, streams, queues, workers, runs and dead letters, all read once."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.dead_letters import DeadLetters
from gymq.cluster.server.probe import read_info
from gymq.cluster.server.store import ServerRecord
from gymq.ext.shared.cluster_state import QueueState, WorkerState, read_queues, read_workers, seconds_since
from gymq.ext.shared.run_overview import RunProgress, run_progress
from gymq.runs.stored_runs import Runs


class ServerState(msgspec.Struct, frozen=True):
    version: str | None  # None: the server does not say it to strangers, or is reached through a proxy
    uptime_s: float | None  # None for a server that gymq did not start
    storage_bytes: int  # of all streams


class StreamState(msgspec.Struct, frozen=True):
    name: str
    messages: int
    num_bytes: int


class DeadLetterState(msgspec.Struct, frozen=True):
    subject: str  # where it had been published
    reason: str
    at: float  # Unix time, seconds


class ClusterStatus(msgspec.Struct, frozen=True):
    server: ServerState
    streams: list[StreamState]
    queues: list[QueueState]
    workers: list[WorkerState]
    runs: list[RunProgress]  # the newest
    num_runs: int
    num_dead_letters: int
    dead_letters: list[DeadLetterState]  # the newest, newest first


async def read_status(bus: Bus, url: str, record: ServerRecord | None) -> ClusterStatus:
    """Ask server and workers.

    Args:
        url: where the bus is connected to.
        record: of the embedded server, if that is what it is connected to.

    Raises:
        BusError: the server does not answer, or does not have the streams of gymq.
    """
    js = bus.js
    account = await js.api("INFO")
    infos = {name: await js.api(f"STREAM.INFO.{name}") for name in streams.stream_configs()}
    records = await Runs(bus).records()
    return ClusterStatus(
        server=await _server(url, record, int(account["storage"])),
        streams=[StreamState(name, info["state"]["messages"], info["state"]["bytes"]) for name, info in infos.items()],
        queues=[queue for name in infos for queue in await read_queues(js, name)],
        workers=await read_workers(bus),
        runs=[await run_progress(bus, record) for record in records[:10]],
        num_runs=len(records),
        num_dead_letters=infos[streams.DEAD_LETTERS]["state"]["messages"],
        dead_letters=await _newest_dead_letters(bus),
    )


async def _server(url: str, record: ServerRecord | None, storage_bytes: int) -> ServerState:
    if record is not None:
        return ServerState(record.version, seconds_since(datetime.fromisoformat(record.started)), storage_bytes)
    address = urlsplit(url.split(",")[0] if "://" in url else f"nats://{url.split(',')[0]}")
    info = await read_info(address.hostname or "127.0.0.1", address.port or 4222, 1.0)
    return ServerState(None if info is None else info.version, None, storage_bytes)


async def _newest_dead_letters(bus: Bus) -> list[DeadLetterState]:
    letters = [entry.letter for entry in await DeadLetters(bus).newest(3)]
    return [DeadLetterState(letter.subject, letter.reason, letter.at) for letter in reversed(letters)]
