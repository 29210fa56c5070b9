"""From a data set to its rollouts in a file: submit, follow, write, resume.

The true record of a run is the stream; the files follow it. A collection that is killed at any moment is gone on with
by starting it again: what the stream or the output file holds is not asked for a second time.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gymq import streams, subjects
from gymq.bus import Bus, BusError
from gymq.cancel import Cancellations
from gymq.jetstream import JetStream
from gymq.jsonl import JsonlFile, LineSource, mend_last_line
from gymq.messages import BadMessage, Outcome, Rollout, Task
from gymq.outcome_store import OutcomeStore
from gymq.resume import FailureGroup, Resume
from gymq.rows import MaterialisedRow
from gymq.run_files import Appender, Manifest, RunFiles, failure_row, output_row
from gymq.run_setup import CollectError as CollectError
from gymq.run_setup import CollectOptions as CollectOptions
from gymq.run_setup import RunSetup
from gymq.tasks import read_task, submit

SUBMITTERS = 64  # publishes in flight
SUBMIT_PATIENCE_S = 120.0  # while the server is away or full
CANCEL_GRACE_S = 5.0  # for the last outcomes of a cancelled run
SERVER_PATIENCE_S = 300.0  # without an answer, before a collection gives up; what was stored is not lost
CATCH_UP_EVERY_S = 1.0  # the doorbell may be missed
STALLED_AFTER_S = 30.0


Key = tuple[int, int]  # task and rollout index


@dataclass
class Progress:
    """How far a collection is; read by whoever shows it."""

    run: str = ""
    total: int = 0
    before: int = 0  # finished by earlier starts
    submitted: int = 0
    in_flight: int = 0  # submitted, here or by an earlier start, and without an outcome
    done: int = 0
    failed: int = 0
    refused: int = 0  # rows of the input that cannot be used
    failures: dict[str, int] = field(default_factory=dict)
    rewards: dict[str, tuple[int, float]] = field(default_factory=dict)  # per agent: count and sum
    last_change: float = field(default_factory=time.monotonic)

    @property
    def finished(self) -> int:
        return self.done + self.failed

    @property
    def mean_reward(self) -> float | None:
        """Mean over the rollouts that finished since this start; None before the first."""
        count = sum(count for count, _ in self.rewards.values())
        return sum(total for _, total in self.rewards.values()) / count if count else None

    @property
    def stalled_s(self) -> float:
        """Seconds without a finished rollout, beyond what is usual."""
        silent = time.monotonic() - self.last_change
        return silent if silent > STALLED_AFTER_S else 0.0


class Collection:
    """One run of a data set, over one bus.

    Attributes:
        progress: how far the run is.
        files: where its rows and results are written.
        warnings: sentences for the person who collects.
        failed: why rollouts have no result; known once `run` has returned.
    """

    def __init__(self, bus: Bus, options: CollectOptions) -> None:
        self.progress = Progress()
        self.files = RunFiles(options.output)
        self.warnings: list[str] = []
        self.failed: list[FailureGroup] = []
        self._bus = bus
        self._js = JetStream(bus)
        self._outcomes = OutcomeStore(bus)
        self._options = options
        # Makes the repeat of a publish a duplicate, but not the task of an earlier start that somebody purged since.
        self._start = secrets.token_hex(8)
        self._last_sequence = 0
        self._bell = asyncio.Event()
        self._room = asyncio.Event()
        self._in_flight: dict[Key, int | None] = {}  # with the sequence of the failure to be replaced
        self._missing: set[Key] = set()  # in flight, but in the queue no more when it was looked at last
        self._look_again_at = 0.0
        self._submitting = True
        self._cancelled_at: float | None = None
        self._replaceable: dict[Key, int] = {}
        self._known_failures: set[int] = set()

    async def run(self) -> Progress:
        """Collect until every rollout has an outcome.

        Raises:
            CollectError, RowError, JsonlError, RunFileError: bad input; nothing was changed.
            BusError: NATS was away for too long. Start it again to go on.
        """
        with self.files.held():
            setup = RunSetup(self._bus, self.files, self._options)
            manifest = await setup.manifest()
            self.warnings += setup.warnings
            self.progress.run = manifest.run
            self.progress.total = manifest.num_rollouts
            self.progress.refused = manifest.num_refused
            await Cancellations(self._bus, self._on_cancel).start(manifest.run)
            if self._cancelled_at is not None:
                raise CollectError(
                    f"run {manifest.run} in {self.files.output} was cancelled: "
                    "choose another output, or say --overwrite"
                )
            await self._collect(manifest)
        self.progress.failed = self.progress.total - self.progress.done
        return self.progress

    async def _collect(self, manifest: Manifest) -> None:
        output, failures = Appender(self.files.output), Appender(self.files.failures)
        bell = await self._bus.subscribe(subjects.done_of_run(manifest.run), self._ring)
        try:
            # A million rows take a minute to read; meanwhile the server wants to hear from this connection.
            with await asyncio.to_thread(self._resume) as resume:
                # In this order: a task that ends in between is found among the outcomes.
                await self._find_queued(resume)
                await self._catch_up(resume, output, failures)
                self.progress.before = self.progress.done = len(resume.done)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._submit_all(resume))
                    group.create_task(self._follow(resume, output, failures))
                self.failed = await asyncio.to_thread(resume.failed, JsonlFile(self.files.failures))
        except ExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            if not self._bus.lost.is_set():
                await bell.unsubscribe()
            output.close()
            failures.close()

    def _resume(self) -> Resume:
        for path in (self.files.output, self.files.failures):
            mend_last_line(path)
        failures: LineSource = JsonlFile(self.files.failures)
        self._known_failures = set(_failure_sequences(failures))
        return Resume(JsonlFile(self.files.materialised), JsonlFile(self.files.output), failures)

    async def _find_queued(self, resume: Resume) -> None:
        """Tasks of an earlier start that are still in the queue are not submitted again."""
        async for task in self._queued():
            key = (task.task_index, task.rollout_index)
            if key not in resume.done:
                self._in_flight[key] = task.replaces

    async def _queued(self) -> AsyncIterator[Task]:
        """The run's tasks in the queue, waiting or in work."""
        for subject in self._queues():
            async for stored in self._js.read(streams.TASKS, subject):
                try:
                    yield await read_task(self._bus, stored.data)
                except BadMessage:
                    continue  # an agent will bury it

    def _queues(self) -> tuple[str, str]:
        return subjects.tasks_of_run(self.progress.run), subjects.urgent_tasks_of_run(self.progress.run)

    async def _give_up_lost(self) -> None:
        """Do not wait for tasks that have left the queue without an outcome: buried, or removed by somebody.

        They count as lost when that was seen twice, since outcomes are read in between.
        """
        counts = [sum((await self._js.count_by_subject(streams.TASKS, queue)).values()) for queue in self._queues()]
        if sum(counts) >= len(self._in_flight):
            return
        queued = {(task.task_index, task.rollout_index) async for task in self._queued()}
        missing = self._in_flight.keys() - queued
        lost = missing & self._missing
        self._missing = missing - lost
        if lost:
            self.warnings.append(
                f"{len(lost)} rollouts left the queue without an outcome (`gymq dead-letters` may know why); "
                "the next start submits them again"
            )
        for key in lost:
            del self._in_flight[key]
        self._room.set()

    def _on_cancel(self, _run: str, task_index: int | None) -> None:
        if task_index is None:
            self._cancelled_at = time.monotonic()
            self._room.set()
            self._bell.set()

    async def _submit_all(self, resume: Resume) -> None:
        waiting = resume.to_run()
        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(self._submit(resume, waiting))
        self._submitting = False
        self._bell.set()

    async def _submit(self, resume: Resume, waiting: Iterator[MaterialisedRow]) -> None:
        for row in waiting:
            key = (row.task_index, row.rollout_index)
            if key in self._in_flight:
                continue
            while len(self._in_flight) >= self._options.window and self._cancelled_at is None:
                self._room.clear()
                await self._room.wait()
            if self._cancelled_at is not None:
                return
            if key in resume.done:
                continue
            self._in_flight[key] = self._replaceable.get(key)
            self.progress.submitted += 1
            self.progress.in_flight = len(self._in_flight)
            await self._publish(row, resume.num_rollouts(row.task_index))

    async def _publish(self, row: MaterialisedRow, num_rollouts: int) -> None:
        task = Task(
            run=self.progress.run,
            task_index=row.task_index,
            rollout_index=row.rollout_index,
            num_rollouts=num_rollouts,
            agent=row.agent,
            row=row.json,
            timeout_s=self._options.rollout_timeout_s,
            replaces=self._in_flight[row.task_index, row.rollout_index],
            max_staleness=self._options.max_staleness,
        )
        await submit(self._bus, task, once=self._start, urgent=self._options.urgent, patience_s=SUBMIT_PATIENCE_S)

    async def _ring(self, _message: Any) -> None:
        self._bell.set()

    async def _follow(self, resume: Resume, output: Appender, failures: Appender) -> None:
        """Write outcomes as they arrive, until all that was submitted has one."""
        heard_at = time.monotonic()
        while (self._submitting or self._in_flight) and not self._is_cut():
            try:
                async with asyncio.timeout(CATCH_UP_EVERY_S):
                    await self._bell.wait()
            except TimeoutError:
                pass
            self._bell.clear()
            try:
                await self._catch_up(resume, output, failures)
                if self.progress.stalled_s and time.monotonic() > self._look_again_at:
                    await self._give_up_lost()
                    self._look_again_at = time.monotonic() + STALLED_AFTER_S
                heard_at = time.monotonic()
            except BusError as error:
                if self._bus.lost.is_set():
                    raise
                if time.monotonic() - heard_at > SERVER_PATIENCE_S:
                    raise BusError(f"{error}; start the collection again to go on") from None
                await asyncio.sleep(CATCH_UP_EVERY_S)

    def _is_cut(self) -> bool:
        """Whether the run was cancelled so long ago that nothing more will come of it."""
        return self._cancelled_at is not None and time.monotonic() - self._cancelled_at > CANCEL_GRACE_S

    async def _catch_up(self, resume: Resume, output: Appender, failures: Appender) -> None:
        async for sequence, outcome in self._outcomes.read(self.progress.run, after=self._last_sequence):
            self._take(sequence, outcome, resume, output, failures)
            self._last_sequence = sequence
        output.flush()
        failures.flush()
        self.progress.in_flight = len(self._in_flight)

    def _take(self, sequence: int, outcome: Outcome, resume: Resume, output: Appender, failures: Appender) -> None:
        key = (outcome.task_index, outcome.rollout_index)
        progress = self.progress
        # The task that is to replace this very failure has yet to come.
        if self._in_flight.get(key, sequence) != sequence:
            del self._in_flight[key]
            self._room.set()
        if isinstance(outcome, Rollout):
            if not resume.done.add(*key):
                return
            output.write(output_row(outcome))
            progress.done += 1
            count, total = progress.rewards.get(outcome.agent, (0, 0.0))
            progress.rewards[outcome.agent] = (count + 1, total + outcome.reward)
        else:
            self._replaceable[key] = sequence
            if sequence in self._known_failures:
                return
            self._known_failures.add(sequence)
            failures.write(failure_row(outcome, sequence))
            progress.failed += 1
            name = str(outcome.failure_class)
            progress.failures[name] = progress.failures.get(name, 0) + 1
        progress.last_change = time.monotonic()


class _FailureSequence(msgspec.Struct):
    sequence: int | None = msgspec.field(default=None, name="_ng_failure_sequence")


def _failure_sequences(failures: LineSource) -> Iterator[int]:
    decode = msgspec.json.Decoder(_FailureSequence).decode
    for line in failures:
        sequence = decode(line).sequence
        if sequence is not None:
            yield sequence


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """The first of the errors that ended the tasks of a collection."""
    error: Exception = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
