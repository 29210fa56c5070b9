"""Profiles every run while its rollouts arrive.

Once a second the new outcomes of all runs are read and each changed run gets a checkpoint in the stream RUNS: the
statistics for anyone who wants to see them, and the state to resume from. Nothing is acknowledged, so nothing that was
lost on the way is lost for the statistics. A checkpoint is only written over the one that it continues; of several
profilers one is thus ahead, and the others follow it. The first one of a run is empty and stored before anything is
counted: where it is missing later, the run was deleted, and all that was counted is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass

import msgspec

from gymq.bus import Bus, BusError, TooLarge, streams
from gymq.bus.jetstream import JetStream, Stored
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.repeating import repeat
from gymq.processes.background import end_task
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, compressed, encode
from gymq.protocol.messages import BadMessage, Outcome, Profile, Run, VerifiedRollout
from gymq.stats.outcome_feed import add_outcome
from gymq.stats.running import ProfileSnapshot, RunningProfile

log = logging.getLogger("gymq.profiler")

CHECKPOINT_EVERY_S = 1.0

_decode_profile = Decoder(Profile)
_decode_run = Decoder(Run)


@dataclass
class _Profiled:
    profile: RunningProfile
    sequence: int = 0  # of the last outcome in it
    stored_sequence: int = 0  # of the last outcome in its checkpoint
    stored_as: int = 0  # stream sequence of the checkpoint itself
    changed_at: float = 0.0
    ended_at: float = 0.0  # Unix time of the last end of a rollout among those that were added; 0: unknown
    is_outdated: bool = False  # an outcome was replaced that is in the sums of its task

    def add(self, sequence: int, outcome: Outcome) -> None:
        """Count an outcome, unless it is counted already or cannot be counted."""
        if sequence <= self.sequence:
            return
        self.sequence = sequence
        self.changed_at = time.monotonic()
        if outcome.started_at:
            self.ended_at = max(self.ended_at, outcome.started_at + outcome.duration_s)
        if self.profile.is_complete(outcome.task_index):
            self.is_outdated = True
            if not isinstance(outcome, VerifiedRollout):
                self.profile.count_attempt(outcome.agent, outcome.failure_class)
            return
        try:
            add_outcome(self.profile, sequence, outcome)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            log.warning("%s is left out of the profile of %s: %r", sequence, outcome.run, error)


class Profiler:
    """Reads outcomes and keeps the profiles of all runs."""

    def __init__(self, bus: Bus) -> None:
        self._js = bus.js
        self._outcomes = OutcomeStore(bus)
        self._runs: dict[str, _Profiled] = {}
        self._aside: set[str] = set()  # runs whose statistics cannot be kept
        self.num_aside = 0  # messages that are not outcomes, or whose run is set aside
        self._position: int | None = None  # stream sequence up to which all outcomes are in the profiles
        self._safe_position = 0  # the same, for the checkpoints
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        failed = "outcomes not read, or checkpoint not stored; the profiler continues at its last position"
        self._working = asyncio.create_task(repeat(self._read_new, log, failed, pause_s=CHECKPOINT_EVERY_S))

    async def stop(self) -> None:
        await end_task(self._working)
        try:
            # With what was stored since the last look: a run that is complete shall have its whole profile.
            async with asyncio.timeout(20.0):
                await self._read_new()
        except (BusError, TimeoutError) as error:
            log.warning("last checkpoint not stored: %s", error or "no time is left")

    async def _read_new(self) -> None:
        if self._position is None:
            self._position = self._safe_position = await self._position_of_checkpoints()
        are_all_counted = False
        while not are_all_counted:
            are_all_counted = await self._count_from(self._position)
            await self._checkpoint()

    async def _count_from(self, position: int) -> bool:
        """Count outcomes until it is time for a checkpoint; return whether these were all.

        Others that were read already are read again after it, since their run may turn out to be deleted.
        """
        checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S
        async for sequence, outcome in self._outcomes.read_all(after=position):
            if not await self._add(sequence, outcome):
                return False
            self._position = sequence
            if time.monotonic() > checkpoint_at:
                return False
        return True

    async def _add(self, sequence: int, outcome: Outcome | None) -> bool:
        """Count one outcome; return False if it has gone meanwhile: its run was deleted."""
        if outcome is None or outcome.run in self._aside:
            self.num_aside += 1
            return True
        run = outcome.run
        if run in self._runs:
            self._runs[run].add(sequence, outcome)
        else:
            self._runs[run] = await self._load(run, sequence)
        if self._runs[run].profile.is_outgrown(outcome.task_index, outcome.num_rollouts or 0):
            self._runs[run] = await self._load(run, sequence, extended_to=outcome.num_rollouts)
        return self._runs[run].sequence >= sequence

    def _set_aside(self, run: str, error: Exception) -> None:
        """Stop keeping statistics of a run, so that those of all others continue."""
        self._aside.add(run)
        self._runs.pop(run, None)
        log.error("no further statistics for run %s: its profile cannot be stored", run, exc_info=error)

    async def _position_of_checkpoints(self) -> int:
        stored = await self._js.newest(streams.RUNS, subjects.PROFILE.wildcard)
        newest = None if stored is None else _readable(stored)
        # A position that the stream never had would hide all outcomes up to it.
        if newest is None or newest.all_sequence > await self._last_sequence():
            return 0
        return newest.all_sequence

    async def _last_sequence(self) -> int:
        last = await self._js.newest(streams.ROLLOUTS, subjects.ALL_ROLLOUTS)
        return 0 if last is None else last.sequence

    async def _load(
        self, run: str, through: int, *, extended_to: int | None = None, recount: bool = False
    ) -> _Profiled:
        """Build the profile of a run from its checkpoint and the outcomes after it.

        Args:
            through: stream sequence up to which they are counted.
            recount: whether to count all outcomes again.
            extended_to: rollouts that a task of the run is known to have. All outcomes of a run that was extended are
                counted again, since its checkpoint took tasks for complete.
        """
        extended_to = max(extended_to or 0, await _extended_to(self._js, run))
        profiled = _Profiled(RunningProfile(extended_to=extended_to))
        subject = subjects.PROFILE.of(run)
        stored = await self._js.last(streams.RUNS, subject) or await self._js.publish_or_last(
            streams.RUNS, subject, self._encoded(run, profiled), last=0, patience_s=10.0
        )
        if stored is not None:
            profile, sequence = _checkpointed(stored)
            is_ahead = sequence > await self._last_sequence()
            if is_ahead:
                log.warning("%s is ahead of all outcomes, so they are recounted", stored.subject)
            if is_ahead or recount or not profile.knows_extension(extended_to):
                profile, sequence = RunningProfile(extended_to=extended_to), 0
            profiled = _Profiled(profile, sequence, sequence, stored.sequence)
        async for sequence, outcome in self._outcomes.read(run, after=profiled.sequence):
            if sequence <= through:
                profiled.add(sequence, outcome)
            if sequence >= through:
                break
        return profiled

    async def _recounted(self, run: str, outdated: _Profiled, through: int) -> _Profiled:
        """Build a profile again in which the task of a replaced outcome is folded: a final failure was requeued."""
        recounted = await self._load(run, through, recount=True)
        if recounted.stored_as != outdated.stored_as:  # the run was deleted, or another profiler was faster
            return await self._load(run, through)
        recounted.profile.take_attempts(outdated.profile)
        recounted.is_outdated = False
        return recounted

    async def _checkpoint(self) -> None:
        position = self._position
        if position is None:
            return
        for run, profiled in list(self._runs.items()):
            if profiled.is_outdated:
                profiled = self._runs[run] = await self._recounted(run, profiled, position)
            if profiled.sequence > profiled.stored_sequence:
                try:
                    if not await self._store(run, profiled):
                        # Another profiler was faster, or the run was deleted.
                        self._runs[run] = await self._load(run, position)
                except (TooLarge, ArithmeticError, RecursionError, TypeError, ValueError) as error:
                    self._set_aside(run, error)
            elif time.monotonic() - profiled.changed_at > 600.0:
                # A run that continues after so long is read from its checkpoint.
                del self._runs[run]
        self._safe_position = position

    async def _store(self, run: str, profiled: _Profiled) -> bool:
        """Store a checkpoint; False if there is one that this one does not continue."""
        sequence = profiled.sequence
        body = self._encoded(run, profiled)
        stored_as = await self._js.publish_if_last(
            subjects.PROFILE.of(run), body, last=profiled.stored_as, patience_s=10.0
        )
        if stored_as is None:
            return False
        profiled.stored_sequence, profiled.stored_as = sequence, stored_as
        return True

    def _encoded(self, run: str, profiled: _Profiled) -> bytes:
        checkpoint = Profile(
            run=run,
            sequence=profiled.sequence,
            all_sequence=self._safe_position,
            at=min(time.time(), profiled.ended_at or math.inf),
            snapshot=msgspec.to_builtins(profiled.profile.snapshot(), str_keys=True),
            state=profiled.profile.state(),
        )
        return compressed(encode(checkpoint))


def _readable(stored: Stored) -> Profile | None:
    """Decode a checkpoint; an unreadable one counts as missing, since all that was in it can be counted again."""
    try:
        checkpoint: Profile = _decode_profile(stored.data)
        msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True)
    except (BadMessage, msgspec.ValidationError) as error:
        log.warning("%s cannot be read: %s", stored.subject, error)
        return None
    return checkpoint


def _checkpointed(stored: Stored) -> tuple[RunningProfile, int]:
    """Return the profile in a checkpoint, and the last outcome in it; an empty one if all has to be counted again."""
    checkpoint = _readable(stored)
    if checkpoint is not None:
        try:
            return RunningProfile.from_state(checkpoint.state), checkpoint.sequence
        except (ValueError, OverflowError, RecursionError) as error:
            log.warning("%s: %s", stored.subject, error)
    return RunningProfile(), 0


async def _extended_to(js: JetStream, run: str) -> int:
    """Return the largest number of rollouts of a task of a run that was extended; 0: it was not."""
    stored = await js.last(streams.RUNS, subjects.RUN.of(run))
    try:
        return 0 if stored is None else _decode_run(stored.data).extended_to or 0
    except BadMessage as error:
        log.warning("%s cannot be read: %s", subjects.RUN.of(run), error)
        return 0


async def last_profile(js: JetStream, run: str) -> tuple[RunningProfile, int]:
    """Return the profile of a run as of its last checkpoint, and the stream sequence of the last outcome in it.

    A checkpoint from before the run was extended is ignored.
    """
    extended_to = await _extended_to(js, run)
    stored = await js.last(streams.RUNS, subjects.PROFILE.of(run))
    if stored is not None:
        profile, sequence = _checkpointed(stored)
        if profile.knows_extension(extended_to):
            return profile, sequence
    return RunningProfile(extended_to=extended_to), 0


async def read_profile(js: JetStream, run: str) -> Profile | None:
    """Return the last checkpoint of a run's profile; None if nothing is counted yet, or it is unreadable."""
    stored = await js.last(streams.RUNS, subjects.PROFILE.of(run))
    checkpoint = None if stored is None else _readable(stored)
    return checkpoint if checkpoint is not None and checkpoint.sequence else None
