"""Cancelling a run or a task: what is queued is removed, what runs is stopped, each ends as cancelled.

The mark is a stored message. Whoever works on the run hears it as it is published; whoever starts later reads it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from gymq import streams, subjects
from gymq.bus import Bus, BusError, Denied
from gymq.jetstream import JetStream
from gymq.messages import (
    BadMessage,
    Cancellation,
    Failure,
    FailureClass,
    Task,
    decoder,
    encode,
)
from gymq.outcome_store import OutcomeStore
from gymq.tasks import failed_in_queue, read_task

log = logging.getLogger("gymq.cancel")

READ_AGAIN_S = 1.0

_decode_cancellation = decoder(Cancellation)


class Cancellations:
    """What has been cancelled, as far as this process knows."""

    def __init__(self, bus: Bus, on_cancel: Callable[[str, int | None], None]) -> None:
        """
        Args:
            on_cancel: called with run and task index (None: all tasks) for each cancellation that comes in.
        """
        self._bus = bus
        self._on_cancel = on_cancel
        self._runs: set[str] = set()
        self._tasks: set[tuple[str, int]] = set()
        self._subject = ""
        self._last_sequence = 0  # of those read
        self._reading: asyncio.Task[None] | None = None

    async def start(self, run: str | None = None) -> None:
        """Hear of cancellations from now on, and read those of the past; of one run or of all."""
        self._subject = subjects.ALL_CANCELLED if run is None else subjects.cancelled_of_run(run)
        await self._bus.subscribe(self._subject, self._on_message)
        self._bus.on_reconnect(self._read_again)
        await self._read()

    def _read_again(self) -> None:
        # What was published while this process was away is not heard any more.
        self._reading = asyncio.create_task(self._read_surely())

    async def _read_surely(self) -> None:
        while not self._bus.lost.is_set():
            try:
                await self._read()
                return
            except BusError as error:
                log.warning("cannot read what was cancelled meanwhile: %s", error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _read(self) -> None:
        async for stored in JetStream(self._bus).read(streams.RUNS, self._subject, after=self._last_sequence):
            self._add(stored.data)
            self._last_sequence = stored.sequence

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key[0] in self._runs or key in self._tasks

    async def _on_message(self, message: Any) -> None:
        self._add(message.data)

    def _add(self, body: bytes) -> None:
        try:
            cancellation = _decode_cancellation(body)
        except BadMessage:
            return
        run, task_index = cancellation.run, cancellation.task_index
        if run in self._runs or (run, task_index) in self._tasks:
            return
        if task_index is None:
            self._runs.add(run)
        else:
            self._tasks.add((run, task_index))
        self._on_cancel(run, task_index)


async def cancel(bus: Bus, run: str, task_index: int | None = None) -> int:
    """Cancel a run, or one task of it.

    Returns:
        How many tasks were in the queue, waiting or in work.

    Raises:
        BusError: NATS did not answer; say it again.
    """
    js = JetStream(bus)
    mark = Cancellation(run=run, task_index=task_index, at=time.time())
    await js.store_surely(subjects.cancelled(run, task_index), encode(mark), {}, patience_s=30.0)
    queued = 0
    may_settle = True
    for subject in (subjects.tasks_of_run(run), subjects.urgent_tasks_of_run(run)):
        async for stored in js.read(streams.TASKS, subject):
            try:
                task = await read_task(bus, stored.data)
            except BadMessage:
                continue  # an agent will bury it
            if task_index is not None and task.task_index != task_index:
                continue
            queued += 1
            try:
                if may_settle:
                    await OutcomeStore(bus).put(cancelled_outcome(task), replaces=task.replaces, patience_s=30.0)
                    await streams.remove_message(js, streams.TASKS, stored.sequence)
            except Denied:
                may_settle = False  # a client with a role of its own: agents settle each as they come to it
    return queued


def cancelled_outcome(task: Task, *, worker: str = "") -> Failure:
    """The outcome of a rollout that was cancelled."""
    return failed_in_queue(task, FailureClass.CANCELLED, "cancelled", retryable=False, worker=worker)
