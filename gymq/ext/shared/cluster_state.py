"""The queues, workers and newest runs of a cluster.

`read_overview` reads what viewers poll, at a cost that does not grow with what is stored: its counts of rollouts are
those of the profiler's checkpoints, and so about a second behind, where `gymq.runs.stored_runs` has the server add up
the stored outcomes, a tenth of a second for a million of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.discovery import find_workers
from gymq.bus.jetstream import JetStream
from gymq.bus.rpc.process_reports import ModelReport
from gymq.execution.services.profiler import read_profile
from gymq.ext.shared.run_overview import RunOverview, run_overview
from gymq.protocol import subjects
from gymq.protocol.subjects import TaskQueueName
from gymq.runs.stored_runs import Runs

_KINDS = {"tasks": False, "urgent": True}  # of queues of tasks, and whether they are urgent


class QueueState(msgspec.Struct, frozen=True):
    """What a durable consumer has to work through: a service's, or those of an agent's tasks together."""

    stream: str
    consumer: str
    agent: str | None  # whose tasks these are; None for a service
    urgent: bool  # whether its tasks are taken before others
    waiting: int
    in_flight: int  # delivered and not settled yet
    redelivered: int  # of those in flight


class WorkerState(msgspec.Struct, frozen=True):
    """One instance in one process."""

    name: str
    kind: str
    implementation: str
    worker: str  # id of its process
    uptime_s: float
    load: int  # calls running or waiting
    sessions: int | None  # None: keeps no state
    requests: int
    errors: int
    memory_bytes: int | None = None  # of its process; None: it does not say
    blocked: str = ""  # how one of its calls blocked the event loop of the process last
    sandbox_weakness: str = ""  # which limits of its programs are not exact, and how to get exact ones
    oddities: dict[str, int] = {}  # what a model read although it was slightly off, by its kind


class Overview(msgspec.Struct, frozen=True):
    at: float  # Unix time, seconds
    num_outcomes: int  # outcomes ever stored, of all runs; grows with each
    num_stored: int  # rollouts that have one now: those of deleted runs do not
    num_dead_letters: int
    queues: list[QueueState]  # of tasks
    workers: list[WorkerState]
    runs: list[RunOverview]  # the newest
    num_runs: int


class _Data(msgspec.Struct, frozen=True):
    load: int
    sessions: int | None = None
    memory_bytes: int | None = None
    blocked: str = ""
    sandbox_weakness: str = ""
    model: ModelReport = ModelReport()


class _Endpoint(msgspec.Struct, frozen=True):
    data: _Data | None = None
    num_requests: int = 0
    num_errors: int = 0


class _Answer(msgspec.Struct, frozen=True):
    """What this needs of a worker's STATS."""

    name: str
    id: str
    started: Annotated[datetime, msgspec.Meta(tz=True)]
    metadata: dict[str, str]
    endpoints: list[_Endpoint]


async def read_overview(bus: Bus, at: float, newest: int) -> Overview:
    """Ask server and workers.

    Args:
        at: the time now, Unix time in seconds.
        newest: how many runs to read.

    Raises:
        BusError: the server does not answer, or does not have the streams of gymq.
    """
    js = bus.js
    records = await Runs(bus).records()
    outcomes = (await js.api(f"STREAM.INFO.{streams.ROLLOUTS}"))["state"]
    letters = (await js.api(f"STREAM.INFO.{streams.DEAD_LETTERS}"))["state"]
    return Overview(
        at=at,
        num_outcomes=outcomes["last_seq"],
        num_stored=outcomes["messages"],
        num_dead_letters=letters["messages"],
        queues=[queue for queue in await read_queues(js, streams.TASKS) if queue.agent is not None],
        workers=await read_workers(bus),
        runs=[run_overview(record, await read_profile(js, record.run)) for record in records[:newest]],
        num_runs=len(records),
    )


async def read_workers(bus: Bus) -> list[WorkerState]:
    """Return the workers that answer within half a second."""
    return [worker for stats in await find_workers(bus) if (worker := _worker(stats)) is not None]


async def read_queues(js: JetStream, stream: str) -> list[QueueState]:
    """Return the durable consumers of a stream; the queues of tasks by agent, all runs together.

    Raises:
        BusError: the server does not answer.
    """
    infos = await streams.consumers(js, stream)
    queues = [_queue(info) for info in infos]
    if stream == streams.TASKS:
        queues += await _not_open(js, {info["name"] for info in infos})
    found: dict[str, QueueState] = {}
    for queue in queues:
        found[queue.consumer] = _sum(found[queue.consumer], queue) if queue.consumer in found else queue
    return sorted(found.values(), key=lambda queue: (queue.agent is None, queue.agent, queue.urgent, queue.consumer))


async def _not_open(js: JetStream, open_: set[str]) -> list[QueueState]:
    """Return what waits for agents in queues that are not open, and the agents that have none."""
    found = [_of_agent(kind, agent) for agent in await streams.served_agents(js) for kind in _KINDS]
    for subject, count in (await js.count_by_subject(streams.TASKS, subjects.ALL_QUEUES)).items():
        queue = TaskQueueName.of_subject(subject)
        if queue is not None and queue.consumer not in open_:
            found.append(_of_agent(queue.kind, queue.agent, count))
    return found


def _of_agent(kind: str, agent: str, waiting: int = 0) -> QueueState:
    return QueueState(streams.TASKS, f"{kind}_{agent}", agent, _KINDS[kind], waiting, 0, 0)


def _queue(info: dict[str, Any]) -> QueueState:
    name = info["name"]
    of = TaskQueueName.of_consumer(name)
    return QueueState(
        stream=info["stream_name"],
        consumer=name if of is None else f"{of.kind}_{of.agent}",
        agent=None if of is None else of.agent,
        urgent=of is not None and _KINDS[of.kind],
        waiting=info["num_pending"],
        in_flight=info["num_ack_pending"],
        redelivered=info["num_redelivered"],
    )


def _sum(one: QueueState, other: QueueState) -> QueueState:
    return msgspec.structs.replace(
        one,
        waiting=one.waiting + other.waiting,
        in_flight=one.in_flight + other.in_flight,
        redelivered=one.redelivered + other.redelivered,
    )


def _worker(stats: dict[str, Any]) -> WorkerState | None:
    """Return a worker by its answer; None: another program on the same server gave it."""
    try:
        answer = msgspec.convert(stats, _Answer)
        first = answer.endpoints[0]
    except (msgspec.ValidationError, IndexError):
        return None
    if first.data is None:
        return None
    return WorkerState(
        name=answer.name,
        kind=answer.metadata["kind"],
        implementation=answer.metadata["implementation"],
        worker=answer.id,
        uptime_s=seconds_since(answer.started),
        load=first.data.load,
        sessions=first.data.sessions,
        requests=first.num_requests,
        errors=first.num_errors,
        memory_bytes=first.data.memory_bytes,
        blocked=first.data.blocked,
        sandbox_weakness=first.data.sandbox_weakness,
        oddities=first.data.model.oddities,
    )


def seconds_since(moment: datetime) -> float:
    """Return how long ago a moment was; 0 for one to come, by the clock of another machine."""
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
