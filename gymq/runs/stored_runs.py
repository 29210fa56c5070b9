"""The runs that a cluster has stored, and how far each is."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.jetstream import Stored
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import read_steering
from gymq.execution.services.profiler import read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Profile, Run
from gymq.render import shown_environments
from gymq.stats.running import AgentSnapshot, ProfileSnapshot

_decode_run = Decoder(Run)

log = logging.getLogger("gymq.runs")


class RunOverview(msgspec.Struct, frozen=True):
    """A run as the last checkpoint of its profile shows it, all agents together."""

    run: str
    created_at: float  # Unix time, seconds; 0: unknown
    updated_at: float | None  # Unix time of the last rollout's end; None: none has ended yet
    num_rollouts: int | None  # in all; None: unknown
    num_rewarded: int
    failures: dict[str, int]  # rollouts whose outcome is a failure, by its class
    mean_reward: float | None  # over tasks
    models: list[str]  # what answers behind the policy
    agents: dict[str, AgentSnapshot]
    environments: dict[str, str]  # by agent: the name of its environment in tables
    all: AgentSnapshot | None = None  # all agents together
    note: str = ""  # what people say about it
    tags: list[str] = []
    num_failed_attempts: int = 0  # those that a later outcome replaced count too


def run_overview(record: Run, checkpoint: Profile | None) -> RunOverview:
    """Summarise a run from its record and its checkpoint; without one, it has nothing yet."""
    agents: dict[str, AgentSnapshot] = {}
    whole = None
    if checkpoint is not None:
        snapshot = msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True)
        agents, whole = snapshot.agents, snapshot.all
    return RunOverview(
        run=record.run,
        created_at=record.created_at,
        updated_at=None if checkpoint is None else checkpoint.at,
        num_rollouts=record.num_rollouts,
        num_rewarded=whole.rollouts if whole else 0,
        failures=whole.failures if whole else {},
        mean_reward=whole.mean_reward.value if whole and whole.mean_reward else None,
        models=record.models,
        agents=agents,
        environments=shown_environments(agents),
        all=whole,
        note=record.note,
        tags=record.tags,
        num_failed_attempts=sum(whole.failed_attempts.values()) if whole else 0,
    )


class RunProgress(msgspec.Struct, frozen=True):
    """The progress of a run."""

    run: str
    created_at: float  # Unix time, seconds; 0: unknown
    num_rollouts: int | None  # in all; None: unknown, for runs submitted row by row
    num_stored: int  # rollouts that have an outcome, failures included
    num_rewarded: int  # outcomes with a reward, as of the profiler's last checkpoint
    num_failures: int  # outcomes without one, as of the same
    mean_reward: float | None
    models: list[str]  # what answers behind the policy
    paused: bool = False  # agents start none of its rollouts
    cancelled: bool = False


class Runs:
    """Reads what is stored about runs, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._queue = QueueClient(bus)

    async def records(self) -> list[Run]:
        """Return all runs, the newest first. A run with an unreadable record is left out; it continues all the same.

        Raises:
            BusError: the stream cannot be read.
        """
        found = [_record(stored) async for stored in self._js.read(streams.RUNS, subjects.RUN.wildcard)]
        return sorted((record for record in found if record is not None), key=lambda record: -record.created_at)

    async def record(self, run: str) -> Run | None:
        """Return what was stored at the start of a run; None if its record is missing or unreadable.

        Raises:
            BusError: the record cannot be fetched.
            BadToken: the run's name is not valid.
        """
        stored = await self._js.last(streams.RUNS, subjects.RUN.of(run))
        return None if stored is None else _record(stored)

    async def change(self, run: str, change: Callable[[Run | None], Run]) -> Run:
        """Store a changed record of a run, and return it.

        Args:
            change: makes it from what is stored, once more if that has changed meanwhile.

        Raises:
            BusError: it is not stored.
            BadToken: the run's name is not valid.
        """
        subject = subjects.RUN.of(run)
        while True:
            stored = await self._js.last(streams.RUNS, subject)
            record = None if stored is None else _record(stored)
            changed = change(record)
            last = 0 if stored is None else stored.sequence
            if changed == record or await self._js.publish_if_last(
                subject, encode(changed), last=last, patience_s=30.0
            ):
                return changed

    async def num_stored(self, run: str) -> int:
        """Return how many rollouts of a run have an outcome.

        Raises:
            BusError: they cannot be counted.
            BadToken: the run's name is not valid.
        """
        return await self._js.count(streams.ROLLOUTS, subjects.ROLLOUT.below(run))

    async def exists(self, run: str) -> bool:
        """Return whether anything is known of a run: its record, an outcome, or a task in the queue.

        Raises:
            BusError: the server does not answer.
            BadToken: the run's name is not valid.
        """
        if await self.record(run) is not None or await self.num_stored(run):
            return True
        return bool(await self._queue.num_queued(run))

    async def delete_tasks_of_others(self, config_digest: str, *, resumed: str | None = None) -> None:
        """Remove the queued tasks of collections that were interrupted and have another configuration than this one.

        Workers of this configuration would answer them with another policy, or verify them differently. A collection
        that is resumed submits what is missing again. Tasks of other programs stay: nobody would submit them again.

        Args:
            resumed: the run that is about to be resumed; its tasks stay, and with them how far its rollouts are.

        Raises:
            BusError: the server does not answer.
        """
        runs: set[str] = set()
        for queues in (subjects.TASK.wildcard, subjects.URGENT_TASK.wildcard):
            runs |= {subject.split(".")[2] for subject in await self._js.count_by_subject(streams.TASKS, queues)}
        for run in runs - {resumed}:
            record = await self.record(run)
            if record is not None and record.fingerprint and record.fingerprint.partition("/")[2] != config_digest:
                await streams.delete_tasks(self._js, run)

    async def last_sequence(self, run: str) -> int:
        """Return the stream sequence of the latest outcome of a run that has one.

        Raises:
            BusError: the server does not answer.
            BadToken: the run's name is not valid.
        """
        query = {"last_by_subj": subjects.ROLLOUT.below(run)}
        answer = await self._js.api(f"STREAM.MSG.GET.{streams.ROLLOUTS}", query)
        return int(answer["message"]["seq"])

    async def state(self, record: Run) -> RunProgress:
        """Return the progress of a run.

        Raises:
            BusError: the server does not answer.
        """
        profiled = run_overview(record, await read_profile(self._js, record.run))
        steering = await read_steering(self._bus, record.run)
        return RunProgress(
            run=record.run,
            created_at=record.created_at,
            num_rollouts=record.num_rollouts,
            num_stored=await self.num_stored(record.run),
            num_rewarded=profiled.num_rewarded,
            num_failures=sum(profiled.failures.values()),
            mean_reward=profiled.mean_reward,
            models=record.models,
            paused=steering is not None and steering.paused,
            cancelled=await self._js.newest(streams.RUNS, subjects.cancelled(record.run, None)) is not None,
        )


def _record(stored: Stored) -> Run | None:
    try:
        record: Run = _decode_run(stored.data)
    except BadMessage as error:
        log.warning("%s cannot be read: %s", stored.subject, error)
        return None
    return record
