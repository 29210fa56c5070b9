"""From a data set to its rollouts in a file: submit, follow, write, resume.

The true record of a run is the stream; the files follow it. A collection that is killed at any moment is
resumed by starting it again: what the stream or the output file holds is not asked for a second time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

from gymq.bus import Bus, BusError
from gymq.bus.jetstream import Code, JetStreamError
from gymq.bus.queue.cancel import Cancellations
from gymq.bus.queue.client import MOST_SUBMITTED_AT_ONCE, SERVER_PATIENCE_S, QueueClient
from gymq.bus.queue.steering import Steered, steer
from gymq.bus.rpc.process_reports import tokens_used
from gymq.data.jsonl import JsonlFile, truncate_torn_line
from gymq.data.resume import FailureGroup, Resume
from gymq.data.rows import MaterialisedRow
from gymq.data.run_files import Appender, Manifest, failure_row, output_row
from gymq.protocol.messages import Outcome, Priority, Steering, Task, VerifiedRollout
from gymq.render import counted
from gymq.runs.collection.failure_limit import FailureLimit
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.progress import STALLED_AFTER_S, Progress
from gymq.runs.collection.run_setup import RunSetup
from gymq.runs.collection.waits import Waits
from gymq.runs.stored_runs import Runs
from gymq.stats.running import RunningReward

CATCH_UP_EVERY_S = 1.0  # a notification may be missed

Key = tuple[int, int]  # task and rollout index


class Collection:
    """One run of a data set, over one bus.

    Attributes:
        progress: progress of the run.
        files: paths of its rows and results.
        warnings: sentences for the user.
        stopped: why the run was stopped early because of failures; empty if it was not.
        failed: why rollouts have no result; known once `run` has returned.
    """

    def __init__(self, bus: Bus, plan: RunPlan, report: Callable[[str], None] | None = None) -> None:
        """Prepare a collection.

        Args:
            report: called with sentences for the user as soon as they are known: what is resumed, and what has changed
                since the earlier start.
        """
        self.progress = Progress()
        self.files = plan.files
        self.warnings: list[str] = []
        self.stopped = ""
        self.failed: list[FailureGroup] = []
        self._bus = bus
        self._queue = QueueClient(bus)
        self._plan = plan
        self._options = plan.options
        self._report = report or (lambda _sentence: None)
        self._last_sequence = 0
        self._notified = asyncio.Event()
        self._room = asyncio.Event()
        self._in_flight: dict[Key, int | None] = {}  # with the sequence of the failure to be replaced
        self._publishing: set[Key] = set()  # in flight, but perhaps not in the queue yet: the server may be full
        self._missing: set[Key] = set()  # in flight, but in the queue no more when it was looked at last
        self._look_again_at = 0.0
        self._submitting = True
        self._is_resumed = False
        self._all_submitted = True
        self._cancelled_at: float | None = None
        self._replaceable: dict[Key, int] = {}
        self._known_failures: set[int] = set()
        self._failed: dict[Key, str] = {}  # with the class of the failure; those that are retried now are not
        self._limit: FailureLimit | None = None  # once the outcomes of earlier starts are read
        self._waits = Waits(bus, self.progress)
        self._resume: Resume  # this and the files that are appended to: once they are locked and read
        self._output_file: Appender
        self._failures_file: Appender

    async def run(self) -> Progress:
        """Collect until every rollout has an outcome.

        Raises:
            UsageError, RowError, JsonlError: bad input; nothing was changed.
            BusError: NATS was away for too long; starting the collection again resumes it.
        """
        with self.files.locked():
            setup = RunSetup(self._bus, self._plan)
            manifest = await setup.manifest()
            self.warnings += setup.warnings
            self._is_resumed = setup.is_resumed
            for change in setup.changes:
                self._report(change)
            self.progress.run = manifest.run
            self.progress.total = manifest.num_rollouts
            self.progress.refused = manifest.num_refused
            if not self._is_resumed:
                self._report(
                    f"run {manifest.run}: {counted(manifest.num_rollouts, 'rollout')}, written to {self.files.output}"
                )
            await Cancellations(self._bus, self._on_cancel).start(manifest.run)
            await Steered(self._bus, self._on_steering).start(manifest.run)
            steering = {"share": self._options.share, "priority": self._options.priority}
            if changes := {name: value for name, value in steering.items() if value is not None}:
                await steer(self._bus, manifest.run, **changes)
            if self._cancelled_at is not None:
                raise self._plan.refusal(f"run {manifest.run} was cancelled")
            await self._collect(manifest)
        return self.progress

    async def _collect(self, manifest: Manifest) -> None:
        notify = self._notified.set
        with (
            closing(Appender(self.files.output)) as self._output_file,
            closing(Appender(self.files.failures)) as self._failures_file,
        ):
            try:
                async with self._queue.follow(
                    manifest.run, lambda _: notify(), notify, look_again_every_s=CATCH_UP_EVERY_S
                ):
                    # A million rows take a minute to read; meanwhile the server wants to hear from this connection.
                    with await asyncio.to_thread(self._read_files) as self._resume:
                        await self._finish()
            except ExceptionGroup as errors:
                raise _first(errors) from None

    async def _finish(self) -> None:
        """Collect what is left of the run."""
        resume = self._resume
        await self._forget_lost_failures()
        # In this order: a task that ends in between is found among the outcomes.
        await self._find_queued()
        await self._catch_up()
        self.progress.before = self.progress.done = len(resume.done)
        for key in await asyncio.to_thread(self._retried):
            self._note_failed(key, None)
        if self._is_resumed:
            self._report(await asyncio.to_thread(self._how_far))
        self._limit = FailureLimit(
            self._options.max_failures,
            self.progress.total,
            is_new=not resume.done,
            option=self._options.wording.max_failures,
        )
        async with self._waits.watched(), asyncio.TaskGroup() as group:
            group.create_task(self._submit_all())
            group.create_task(self._follow())
        if self._all_submitted and not self._in_flight:
            self.stopped = ""  # that was the end of the run anyway
        self.failed = await asyncio.to_thread(resume.failed, JsonlFile(self.files.failures))
        self.progress.failures = Counter({group.failure_class: group.num_rollouts for group in self.failed})

    def _read_files(self) -> Resume:
        for path in (self.files.output, self.files.failures):
            truncate_torn_line(path)
        rewards = RunningReward()
        rows, output, failures = map(JsonlFile, (self.files.materialised, self.files.output, self.files.failures))
        resume = Resume(rows, output, failures, note_reward=rewards.add)
        self._known_failures = resume.failure_sequences
        self.progress.rewards = rewards  # complete, since it is read by another thread
        return resume

    async def _forget_lost_failures(self) -> None:
        """Forget the sequences of failures that the server lost with its store, since it uses them again."""
        last = 0
        if self._known_failures:
            try:
                last = await Runs(self._bus).last_sequence(self.progress.run)
            except JetStreamError as error:
                if error.code != Code.MESSAGE_NOT_FOUND:
                    raise
        self._known_failures = {sequence for sequence in self._known_failures if sequence <= last}

    def _how_far(self) -> str:
        run, done, total = self.progress.run, len(self._resume.done), self.progress.total
        if done == total:
            wording = self._options.wording
            again = f"{wording.overwrite} starts over, {wording.more_repeats} extends it"
            return f"run {run} is complete: {done:,} of {total:,}; {again}"
        num_failed, num_final = self._resume.num_failed()
        sentence = f"resuming run {run}: {done:,} of {total:,} done"
        if self._in_flight:
            sentence += f", {len(self._in_flight):,} in flight"
        if num_failed > num_final:
            sentence += f", {num_failed - num_final:,} failed and will be retried"
        if num_final:
            sentence += f", {num_final:,} failed for good"
        return sentence

    def _retried(self) -> list[Key]:
        """Return the failed rollouts that are in flight again, or will be."""
        return [key for key in self._failed if key in self._in_flight or self._resume.may_run(*key)]

    async def _find_queued(self) -> None:
        """Find the tasks of an earlier start that are still queued, so that they are not submitted twice."""
        async for _, task in self._queue.queued(self.progress.run):
            key = (task.task_index, task.rollout_index)
            if key not in self._resume.done:
                self._in_flight[key] = task.replaces
                self._waits.agents.add(task.agent)

    async def _give_up_lost(self) -> None:
        """Stop waiting for tasks that left the queue without an outcome because they were dead-lettered or removed.

        They count as lost when they are missing twice, since outcomes are read in between.
        """
        published = self._in_flight.keys() - self._publishing
        if await self._queue.num_queued(self.progress.run) >= len(published):
            return
        queued = {(task.task_index, task.rollout_index) async for _, task in self._queue.queued(self.progress.run)}
        missing = published - queued
        lost = missing & self._missing
        self._missing = missing - lost
        if lost:
            self.warnings.append(
                f"{counted(len(lost), 'rollout')} left the queue without an outcome; `gymq dead-letters list` may know "
                "why, and the next start submits them again"
            )
        for key in lost:
            del self._in_flight[key]
        self._room.set()

    def _on_steering(self, steering: Steering) -> None:
        self.progress.paused = steering.paused

    def _on_cancel(self, _run: str, task_index: int | None) -> None:
        if task_index is None:
            self._cancelled_at = time.monotonic()
            self._room.set()
            self._notified.set()

    async def _submit_all(self) -> None:
        waiting = self._resume.to_run()
        async with asyncio.TaskGroup() as group:
            for _ in range(MOST_SUBMITTED_AT_ONCE):
                group.create_task(self._submit(waiting))
        self._submitting = False
        self._notified.set()

    async def _submit(self, waiting: Iterator[MaterialisedRow]) -> None:
        for row in waiting:
            key = (row.task_index, row.rollout_index)
            if key in self._in_flight:
                continue
            while len(self._in_flight) >= self._options.window and not self._is_ended:
                self._room.clear()
                await self._room.wait()
            if self._is_ended:
                self._all_submitted = False
                return
            if key in self._resume.done:
                continue
            self._in_flight[key] = self._replaceable.get(key)
            self._waits.agents.add(row.agent)
            self.progress.submitted += 1
            self.progress.in_flight = len(self._in_flight)
            await self._publish(row)

    async def _publish(self, row: MaterialisedRow) -> None:
        task = Task(
            run=self.progress.run,
            task_index=row.task_index,
            rollout_index=row.rollout_index,
            num_rollouts=self._resume.num_rollouts(row.task_index),
            agent=row.agent,
            row=row.json,
            timeout_s=self._options.rollout_timeout_s,
            replaces=self._in_flight[row.task_index, row.rollout_index],
            max_staleness=self._options.max_staleness,
            resumed=self._is_resumed,
        )
        self._publishing.add((row.task_index, row.rollout_index))
        await self._queue.submit(task, urgent=self._options.priority is Priority.URGENT)
        self._publishing.discard((row.task_index, row.rollout_index))

    async def _follow(self) -> None:
        """Write outcomes as they arrive, until all that was submitted has one."""

        async def look() -> None:
            try:
                await self._catch_up()
                if self.progress.stalled_s and time.monotonic() > self._look_again_at:
                    await self._give_up_lost()
                    self._look_again_at = time.monotonic() + STALLED_AFTER_S
            except BusError:
                if self._bus.lost.is_set() or not (self._is_cut() or self.stopped):
                    raise

        while (self._submitting or self._in_flight) and not self._is_cut() and not self.stopped:
            await self._notified.wait()
            self._notified.clear()
            await self._bus.retry_read(look, hint="run the same command again to resume", patience_s=SERVER_PATIENCE_S)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled_at is not None

    @property
    def _is_ended(self) -> bool:
        """Return whether nothing more is submitted."""
        return self.is_cancelled or bool(self.stopped)

    def _is_cut(self) -> bool:
        """Return whether the run was cancelled so long ago that nothing more will come of it."""
        return self._cancelled_at is not None and time.monotonic() - self._cancelled_at > 5.0

    async def _catch_up(self) -> None:
        async for sequence, outcome in self._queue.outcomes.read(self.progress.run, after=self._last_sequence):
            self._take(sequence, outcome)
            self._last_sequence = sequence
        self._output_file.flush()
        self._failures_file.flush()
        self.progress.in_flight = len(self._in_flight)

    def _take(self, sequence: int, outcome: Outcome) -> None:
        key = (outcome.task_index, outcome.rollout_index)
        progress, resume = self.progress, self._resume
        # The task that is to replace this very failure has yet to come.
        if self._in_flight.get(key, sequence) != sequence:
            del self._in_flight[key]
            self._room.set()
        if isinstance(outcome, VerifiedRollout):
            if not resume.done.add(*key):
                return
            self._output_file.write(output_row(outcome, self._options.token_ids))
            self._note_failed(key, None)
            progress.done += 1
            progress.rewards.add(outcome.task_index, resume.num_rollouts(outcome.task_index), outcome.reward)
            used = tokens_used(outcome.response)
            progress.input_tokens += used.input
            progress.output_tokens += used.output
            if self._limit is not None:
                self._limit.note_success()
        elif key in resume.done:
            return  # the store has lost a result that the file has
        else:
            self._replaceable[key] = sequence
            self._note_failed(key, str(outcome.failure_class))
            resume.failed_before.add(*key)
            if sequence in self._known_failures:
                return
            self._known_failures.add(sequence)
            if self._limit is None:  # stored before this start, while no collection ran
                resume.count_failure(*key, terminal=not outcome.retryable, curable=outcome.curable)
            self._failures_file.write(failure_row(outcome, sequence, self._options.token_ids))
            progress.newest_failure = outcome.message.partition("\n")[0]
            if self._limit is not None and not self.stopped:
                self.stopped = self._limit.note_failure(outcome)
                self._room.set()
        if self._limit is not None:  # otherwise it was made before this start
            progress.retried += outcome.attempt
        progress.last_change = time.monotonic()

    def _note_failed(self, key: Key, failure_class: str | None) -> None:
        """Note the failure that a rollout has now; None: it has a result, or is retried."""
        before = self._failed.pop(key, None)
        if before is not None:
            self.progress.failures[before] -= 1
            self.progress.failures = +self.progress.failures  # without a class that no rollout has any more
        if failure_class is not None:
            self._failed[key] = failure_class
            self.progress.failures[failure_class] += 1


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first of the errors that ended the tasks of a collection."""
    error: Exception = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
