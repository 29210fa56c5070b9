"""Opens a queue for the tasks of each run and agent, and closes it when the run wants nothing more.

It runs where the cluster is started: only the operator may make and remove consumers. A task waits in its stream until
its queue is open.
"""

from __future__ import annotations

import asyncio
import logging
import time

from gymq.bus import Bus, Msg, streams
from gymq.bus.jetstream import JetStreamError
from gymq.bus.queue.steering import Steered
from gymq.bus.repeating import repeat
from gymq.processes.background import end_task, is_set_within
from gymq.protocol import subjects
from gymq.protocol.subjects import TaskQueueName

log = logging.getLogger("gymq.run_queues")

LOOK_EVERY_S = 1.0  # new tasks are announced, but not by every program
MAKE_AGAIN_EVERY_S = 30.0  # the consumers of intake and janitor, in case that they were deleted
CLOSE_AFTER_S = 60.0  # without a task
# The server allows 1,000 consumers of a stream, intake among them; further tasks wait until one is closed.
MAX_QUEUES = 990


class RunQueues:
    """Keeps the queues of all runs."""

    def __init__(self, bus: Bus) -> None:
        """Prepare to keep them.

        Args:
            bus: connected as the operator.
        """
        self._bus = bus
        self._js = bus.js
        self._agents: dict[str, float] = {}  # with their ack wait in seconds
        self._open: dict[str, tuple[float, int | None]] = {}  # by consumer: ack wait and limit that it was made with
        self._empty_since: dict[str, float] = {}  # by consumer
        self._wanted = asyncio.Event()
        self._steered = Steered(bus, lambda _: self._wanted.set())
        self._working: asyncio.Task[None] | None = None
        self._num_waiting = 0
        self._made_at = time.monotonic()  # by the start of the cluster

    async def start(self) -> None:
        """Begin to keep the queues."""
        await self._bus.subscribe(subjects.SUBMITTED.wildcard, self._on_submitted)
        await self._steered.start()
        self._wanted.set()
        # The pause is for programs that submit to many agents: they announce each.
        looking = repeat(self._look_when_wanted, log, "cannot look for new queues", pause_s=0.02)
        self._working = asyncio.create_task(looking)

    async def stop(self) -> None:
        await end_task(self._working)

    async def _on_submitted(self, message: Msg) -> None:
        """Look at once, unless it would change nothing: a run that continues to submit announces its queue again."""
        queue = TaskQueueName.of_subject(message.data.decode(errors="replace"))
        is_open = queue is not None and queue.consumer in self._open
        if not is_open and not self._num_waiting:
            self._wanted.set()

    async def _look_when_wanted(self) -> None:
        await is_set_within(self._wanted, LOOK_EVERY_S)
        self._wanted.clear()
        await self.look()

    async def look(self) -> None:
        """Open the queues that are missing, and close those that have been empty for long.

        The consumers of intake and janitor are made again if they were deleted.
        """
        # A server that restarts forgets the question.
        counts = await self._js.count_by_subject(streams.TASKS, subjects.ALL_QUEUES, timeout_s=3.0)
        if time.monotonic() - self._made_at >= MAKE_AGAIN_EVERY_S:
            await streams.ensure_consumers_of_services(self._js)
            self._made_at = time.monotonic()
        there = set(await streams.queues(self._js))
        self._open = {name: made for name, made in self._open.items() if name in there}
        wanted = [queue for subject in counts if (queue := TaskQueueName.of_subject(subject)) is not None]
        if any(queue.agent not in self._agents for queue in wanted):
            self._agents = await streams.served_agents(self._js)
        served = [queue for queue in wanted if queue.agent in self._agents]
        for queue in served:
            try:
                await self._keep(queue, there)
            except JetStreamError as error:  # the others are opened all the same
                log.warning("cannot open the queue %s: %s", queue.consumer, error)
        self._warn(len({queue.consumer for queue in served} - there))
        await self._close(there - {queue.consumer for queue in wanted})

    async def _keep(self, queue: TaskQueueName, there: set[str]) -> None:
        if queue.consumer not in there:
            await self._steered.read_again(queue.run)
        steering = self._steered.of(queue.run)
        limit = None if steering is None else steering.max_in_flight
        wanted = (self._agents[queue.agent], limit)
        if self._open.get(queue.consumer) == wanted:
            return
        if queue.consumer not in there and len(there) >= MAX_QUEUES:
            return
        await streams.ensure_queue(self._js, queue, ack_wait_s=wanted[0], max_in_flight=limit)
        self._open[queue.consumer] = wanted
        if queue.consumer not in there:
            there.add(queue.consumer)
            await self._bus.publish(queue.opened, b"")

    async def _close(self, empty: set[str]) -> None:
        now = time.monotonic()
        self._empty_since = {name: self._empty_since.get(name, now) for name in empty}
        for name, since in self._empty_since.items():
            if now - since >= CLOSE_AFTER_S or self._num_waiting:
                self._open.pop(name, None)
                await streams.close_queue(self._js, name)

    def _warn(self, num_waiting: int) -> None:
        if num_waiting and not self._num_waiting:
            log.warning("%d queues wait: %d are open, as many as there may be", num_waiting, MAX_QUEUES)
        self._num_waiting = num_waiting
