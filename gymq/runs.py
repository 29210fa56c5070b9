"""The runs that a cluster has stored, and how far each is."""

from __future__ import annotations

import msgspec

from gymq import streams, subjects
from gymq.bus import Bus
from gymq.jetstream import JetStream
from gymq.messages import Run, decoder
from gymq.profiler import read_profile
from gymq.running import ProfileSnapshot

# An offset beyond every subject asks for their number alone.
_ONLY_COUNT = 2**40

_decode_run = decoder(Run)


class RunState(msgspec.Struct, frozen=True):
    """How far a run is."""

    run: str
    created_at: float  # Unix time, seconds; 0: nobody said
    num_rollouts: int | None  # in all; None where nobody knows, for runs submitted row by row
    num_stored: int  # rollouts that have an outcome, failures included
    num_rewarded: int  # outcomes with a reward, as of the profiler's last checkpoint
    num_failures: int  # failed attempts, as of the same
    mean_reward: float | None
    models: list[str]  # what answers behind the policy

    @property
    def is_complete(self) -> bool:
        return self.num_rollouts is not None and self.num_stored >= self.num_rollouts


class Runs:
    """Reads what is stored about runs, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._js = JetStream(bus)

    async def records(self) -> list[Run]:
        """All runs, the newest first.

        Raises:
            BusError: the stream cannot be read.
        """
        found = [_decode_run(stored.data) async for stored in self._js.read(streams.RUNS, subjects.ALL_RUNS)]
        return sorted(found, key=lambda record: -record.created_at)

    async def record(self, run: str) -> Run | None:
        """What was stored at the start of a run; None for a run that nobody announced.

        Raises:
            BusError, BadToken
        """
        stored = await self._js.last(streams.RUNS, subjects.run_record(run))
        return None if stored is None else _decode_run(stored.data)

    async def num_stored(self, run: str) -> int:
        """Rollouts of a run that have an outcome.

        Raises:
            BusError, BadToken
        """
        query = {"subjects_filter": subjects.rollouts_of_run(run), "offset": _ONLY_COUNT}
        info = await self._js.api(f"STREAM.INFO.{streams.ROLLOUTS}", query, timeout_s=30.0)
        return int(info.get("total") or 0)

    async def last_sequence(self, run: str) -> int:
        """Stream sequence of the latest outcome of a run that has one.

        Raises:
            BusError, BadToken
        """
        query = {"last_by_subj": subjects.rollouts_of_run(run)}
        answer = await self._js.api(f"STREAM.MSG.GET.{streams.ROLLOUTS}", query)
        return int(answer["message"]["seq"])

    async def state(self, record: Run) -> RunState:
        """How far a run is.

        Raises:
            BusError
        """
        checkpoint = await read_profile(self._js, record.run)
        agents = {}
        if checkpoint is not None:
            agents = msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True).agents
        rewarded = sum(agent.rollouts for agent in agents.values())
        total = sum(agent.rollouts * agent.mean_reward.value for agent in agents.values() if agent.mean_reward)
        return RunState(
            run=record.run,
            created_at=record.created_at,
            num_rollouts=record.num_rollouts,
            num_stored=await self.num_stored(record.run),
            num_rewarded=rewarded,
            num_failures=sum(sum(agent.failures.values()) for agent in agents.values()),
            mean_reward=total / rewarded if rewarded else None,
            models=record.models,
        )
