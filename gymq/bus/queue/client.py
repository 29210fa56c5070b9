"""The queue as seen by those who want rollouts: submit tasks, find those that are queued, follow outcomes, cancel."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from gymq.bus import Bus, BusError, Denied, Msg, blobs, streams
from gymq.bus.jetstream import Code, JetStreamError, Stored
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.steering import steer
from gymq.bus.queue.tasks import UnreadableTask, cancelled_outcome, read_task
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Cancellation, Run, Task
from gymq.protocol.subjects import RolloutId, TaskQueueName

SUBMIT_PATIENCE_S = 120.0  # while the server is away or full
SERVER_PATIENCE_S = 300.0  # without an answer, before a reader gives up; what was stored is not lost
CANCEL_PATIENCE_S = 30.0
MOST_SUBMITTED_AT_ONCE = 64
LOOK_AGAIN_EVERY_S = 15.0  # a notification may be missed

_decode_run = Decoder(Run)


class QueueClient:
    """Submits tasks of runs and follows them, over one bus.

    Attributes:
        outcomes: what became of the tasks.
    """

    def __init__(self, bus: Bus, *, submitter: str | None = None) -> None:
        """Prepare a client.

        Args:
            submitter: within an hour the server takes a task of this submitter once, unless its run was deleted and
                opened again; None: a name that is unique.
        """
        self.outcomes = OutcomeStore(bus)
        self._bus = bus
        self._js = bus.js
        self._submitter = secrets.token_hex(8) if submitter is None else submitter
        self._opened: dict[str, float] = {}  # when the runs were created whose records are stored
        self._announced: dict[str, float] = {}  # when a queue was last said to have tasks, by its subject
        self._submitting = asyncio.Semaphore(MOST_SUBMITTED_AT_ONCE)

    async def open_run(self, run: str, *, patience_s: float = SUBMIT_PATIENCE_S) -> None:
        """Store the record of a run, unless there is one."""
        subject = subjects.RUN.of(run)

        async def read() -> Stored | None:
            return await self._js.last(streams.RUNS, subject)

        stored = await self._bus.retry_read(read, patience_s=patience_s)
        if stored is None:
            record = encode(Run(run=run, created_at=time.time()))
            stored = await self._js.publish_or_last(streams.RUNS, subject, record, last=0, patience_s=patience_s)
        self._opened[run] = 0.0
        with suppress(BadMessage):
            self._opened[run] = 0.0 if stored is None else _decode_run(stored.data).created_at

    async def submit(self, task: Task, *, urgent: bool = False, patience_s: float = SUBMIT_PATIENCE_S) -> int:
        """Put a task into the queue of its agent. A task that replaces another failure is another task.

        Args:
            patience_s: seconds to wait while the server is away or full.

        Returns:
            Its stream sequence; agents take the tasks of a queue in this order.

        Raises:
            BusError: not in the queue.
            BadMessage: the task has no wire form.
        """
        of = task.rollout_id
        subject = (subjects.URGENT_TASK.of if urgent else subjects.TASK.of)(task.run, task.agent)
        headers = {"Nats-Msg-Id": f"{of}/{self._submitter}{self._opened.get(task.run, '')}-{task.replaces or 0}"}
        async with self._submitting:
            body = await blobs.fit(self._bus, encode(task), "task", of)
            stored = await self._js.publish_with_retry(subject, body, headers, patience_s=patience_s)
        now = time.monotonic()
        # Within less than the time after which an empty queue is closed.
        if now - self._announced.get(subject, -math.inf) >= 20.0:
            self._announced[subject] = now
            with suppress(BusError):  # without it the queue is opened a second later
                await self._bus.publish(subjects.SUBMITTED.of(task.run, task.agent), subject.encode())
        return stored.seq

    async def last_taken(self, queue: TaskQueueName) -> int:
        """Return the highest stream sequence of the tasks that agents have taken from a queue; 0: of none."""
        try:
            info = await self._js.api(f"CONSUMER.INFO.{streams.TASKS}.{queue.consumer}")
        except JetStreamError as error:
            if error.code != Code.CONSUMER_NOT_FOUND:
                raise
            return 0  # a queue that is empty is closed, and the next task opens it
        taken: int = info["delivered"]["stream_seq"]
        return taken

    async def queued(self, run: str) -> AsyncIterator[tuple[int, Task]]:
        """Yield the tasks of a run that are queued or in flight, with their stream sequences."""
        for subject in _queues(run):
            async for stored in self._js.read(streams.TASKS, subject):
                try:
                    yield stored.sequence, await read_task(self._bus, stored.data)
                except UnreadableTask as error:
                    yield stored.sequence, error.task
                except BadMessage:
                    continue  # an agent moves it to the dead letters

    async def num_queued(self, run: str) -> int:
        """Return how many tasks of a run are queued or in flight."""
        return (await self.queued_by_agent(run)).total()

    async def queued_by_agent(self, run: str) -> Counter[str]:
        """Return how many tasks of a run are queued or in flight, by the agent's name in subjects."""
        counts: Counter[str] = Counter()
        for queue in _queues(run):
            for subject, count in (await self._js.count_by_subject(streams.TASKS, queue)).items():
                counts[subject.rpartition(".")[2]] += count
        return counts

    @asynccontextmanager
    async def follow(
        self,
        run: str,
        on_stored: Callable[[RolloutId], None],
        on_missed: Callable[[], None],
        *,
        look_again_every_s: float = LOOK_AGAIN_EVERY_S,
    ) -> AsyncIterator[None]:
        """Receive the notifications of a run's outcomes.

        Args:
            on_stored: called when an outcome was stored.
            on_missed: called when notifications may have been missed: after a reconnection, and every
                `look_again_every_s` seconds; and when a stream was deleted, after which readers fail.
        """

        def on_message(message: Msg) -> None:
            rollout = RolloutId.of_subject(message.subject)
            if rollout is not None:
                on_stored(rollout)

        async def look_again() -> None:
            while True:
                await asyncio.sleep(look_again_every_s)
                on_missed()

        notifications = await self._bus.listen(subjects.DONE.below(run), on_message)
        stop_hearing = self._bus.on_reconnect(on_missed)
        looking = asyncio.create_task(look_again())
        watching = asyncio.create_task(streams.watch(self._js, on_missed))
        try:
            await self._bus.flush()
            with suppress(BusError):
                await streams.look(self._js)
            yield
        finally:
            looking.cancel()
            watching.cancel()
            stop_hearing()
            if not self._bus.lost.is_set():
                await notifications.unsubscribe()

    async def mark_cancelled(
        self, run: str, task_index: int | None = None, *, patience_s: float = CANCEL_PATIENCE_S
    ) -> None:
        """Stop the rollouts of a run, or of one task, that are in flight; agents skip those that are queued."""
        mark = encode(Cancellation(run=run, task_index=task_index, at=time.time()))
        await self._js.publish_with_retry(subjects.cancelled(run, task_index), mark, {}, patience_s=patience_s)

    async def cancel(self, run: str, task_index: int | None = None) -> int:
        """Cancel a run, or one task of it; queued rollouts end at once where this client may store outcomes.

        Returns:
            How many rollouts were queued or in flight; of one task, those that no agent ended before they were counted.
        """
        num_queued = await self.num_queued(run) if task_index is None else 0
        removed = await self._mark_or_make_room(run, task_index)
        num_queued += 0 if task_index is None else len(removed)
        for task in removed:
            await self.outcomes.put(cancelled_outcome(task), replaces=task.replaces, patience_s=CANCEL_PATIENCE_S)
        may_settle = True
        async for sequence, task in self.queued(run):
            if task_index is not None and task.task_index != task_index:
                continue
            num_queued += task_index is not None  # agents end the tasks of a run faster than they are read
            try:
                if may_settle:
                    outcome = cancelled_outcome(task)
                    await self.outcomes.put(outcome, replaces=task.replaces, patience_s=CANCEL_PATIENCE_S)
                    await streams.remove_message(self._js, streams.TASKS, sequence)
            except Denied:
                may_settle = False  # a client with a role of its own: agents settle each as they come to it
        if not may_settle and task_index is None:
            await steer(self._bus, run, paused=False)  # of a paused run they would come to none
        return num_queued

    async def _mark_or_make_room(self, run: str, task_index: int | None) -> list[Task]:
        """Mark what is cancelled; on a full server its queued tasks are removed for that, and returned."""
        removed: list[Task] = []
        try:
            await self.mark_cancelled(run, task_index)
        except JetStreamError as full:
            if full.code not in (Code.STREAM_FULL, Code.SERVER_FULL):
                raise
            async for sequence, task in self.queued(run):
                if task_index in (None, task.task_index):
                    try:
                        await streams.remove_message(self._js, streams.TASKS, sequence)
                    except Denied:
                        raise full from None
                    removed.append(task)
            await self.mark_cancelled(run, task_index)
        return removed


def _queues(run: str) -> tuple[str, str]:
    return subjects.TASK.of(run), subjects.URGENT_TASK.of(run)
