"""Profiles every run while its rollouts arrive, as a durable consumer of the stream of outcomes.

Once a second each changed run gets a checkpoint in the stream RUNS: the statistics for whoever wants to see them, and
the state to go on from. Only then are the outcomes it contains acknowledged, so a profiler that is killed reads again
what no checkpoint holds, and skips by sequence what one does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import msgspec

from gymq import streams, subjects
from gymq.bus import Bus, BusError
from gymq.consumer import Consumer
from gymq.jetstream import Delivery, JetStream
from gymq.messages import BadMessage, Profile, decoder, encode
from gymq.outcome_store import OutcomeStore
from gymq.run_profile import add_outcome
from gymq.running import RunningProfile

log = logging.getLogger("gymq.profiler")

CHECKPOINT_EVERY_S = 1.0
FORGET_AFTER_S = 600.0  # a run without outcomes for so long is read from its checkpoint when it goes on

_decode_profile = decoder(Profile)


@dataclass
class _Profiled:
    profile: RunningProfile
    sequence: int  # of the last outcome in it
    stored_sequence: int  # of the last checkpoint
    changed_at: float


class Profiler:
    """Consumes outcomes and keeps the profiles of all runs."""

    def __init__(self, bus: Bus) -> None:
        self._js = JetStream(bus)
        self._outcomes = OutcomeStore(bus)
        self._consumer = Consumer(bus, streams.ROLLOUTS, "profiler", self._handle, batch=1024)
        self._runs: dict[str, _Profiled] = {}
        self._last: Delivery | None = None
        self._checkpointing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._consumer.start()
        self._checkpointing = asyncio.create_task(self._checkpoint_often())

    async def stop(self) -> None:
        await self._consumer.stop()
        if self._checkpointing is not None:
            self._checkpointing.cancel()
        try:
            await self._checkpoint()
        except BusError as error:
            log.warning("last checkpoint not stored: %s", error)

    async def _handle(self, delivery: Delivery) -> None:
        run = delivery.subject.split(".")[2]
        profiled = self._runs.get(run)
        if profiled is None:
            profiled = self._runs[run] = await self._load(run)
        if delivery.sequence > profiled.sequence:
            try:
                outcome = await self._outcomes.decode(delivery.data)
                add_outcome(profiled.profile, delivery.sequence, outcome)
            except (BadMessage, ValueError) as error:
                log.warning("%s is left out of the profile: %s", delivery.subject, error)
            profiled.sequence = delivery.sequence
            profiled.changed_at = time.monotonic()
        self._last = delivery

    async def _load(self, run: str) -> _Profiled:
        checkpoint = await read_profile(self._js, run)
        if checkpoint is None:
            return _Profiled(RunningProfile(), 0, 0, time.monotonic())
        profile = RunningProfile.from_state(checkpoint.state)
        return _Profiled(profile, checkpoint.sequence, checkpoint.sequence, time.monotonic())

    async def _checkpoint_often(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            try:
                await self._checkpoint()
            except BusError as error:
                log.warning("checkpoint not stored: %s", error)

    async def _checkpoint(self) -> None:
        last = self._last
        for run, profiled in list(self._runs.items()):
            if profiled.sequence > profiled.stored_sequence:
                sequence = profiled.sequence
                checkpoint = Profile(
                    run=run,
                    sequence=sequence,
                    at=time.time(),
                    snapshot=msgspec.to_builtins(profiled.profile.snapshot(), str_keys=True),
                    state=profiled.profile.state(),
                )
                await self._js.store_surely(subjects.profile(run), encode(checkpoint), {}, patience_s=10.0)
                profiled.stored_sequence = sequence
            elif time.monotonic() - profiled.changed_at > FORGET_AFTER_S:
                del self._runs[run]
        if last is not None:
            await last.ack()  # acknowledges all before it too
            if self._last is last:
                self._last = None


async def read_profile(js: JetStream, run: str) -> Profile | None:
    """The last checkpoint of a run's profile; None if there is none yet.

    Raises:
        BusError: it cannot be read.
    """
    stored = await js.last(streams.RUNS, subjects.profile(run))
    if stored is None:
        return None
    profile: Profile = _decode_profile(stored.data)
    return profile
