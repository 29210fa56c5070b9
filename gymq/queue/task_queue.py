"""The tasks of one agent instance: pulled into free slots, kept alive while they are worked on, settled in the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from gymq.bus import Bus, BusError, streams
from gymq.bus.jetstream import Delivery, Pull
from gymq.failures import CancelReason
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, Task
from gymq.queue.dead_letters import store_dead_letter
from gymq.queue.tasks import read_task

log = logging.getLogger("gymq.agent")

ASK_AT_ONCE = 256
EMPTY_PAUSE_S = 0.1  # before asking again where nothing came: a queue that is gone refuses at once
URGENT_SHARE = 8  # one slot more in so many is kept free for urgent tasks


class TaskQueue:
    """Hands tasks to `handle`, as many at once as there are slots; urgent ones find slots of their own."""

    def __init__(
        self, bus: Bus, agent: str, slots: int, handle: Callable[[Task, Delivery], Coroutine[Any, Any, None]]
    ) -> None:
        """Prepare to take the tasks of one agent instance.

        Args:
            slots: most tasks at once, beside the urgent ones.
            handle: works on a task and acknowledges its delivery. If it is cancelled, the task is requeued at once; if
                it ends otherwise without an acknowledgement, the task is delivered again after a while.
        """
        self._bus = bus
        self._agent = agent
        self._handle = handle
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._sequences: set[int] = set()  # of the tasks running
        self._lanes = (
            _Lane(bus, streams.agent_consumer(agent), slots, self._start),
            _Lane(bus, streams.urgent_consumer(agent), max(1, slots // URGENT_SHARE), self._start),
        )
        self._beating: asyncio.Task[None] | None = None
        self._is_draining = False

    @property
    def load(self) -> int:
        """Tasks in work."""
        return len(self._running)

    @property
    def num_held_back(self) -> int:
        """Tasks in the queue that find no slot, as of the last delivery; 0 while slots are free."""
        return sum(lane.num_pending for lane in self._lanes if lane.is_full)

    async def start(self) -> None:
        """Begin to take tasks.

        Raises:
            BusError: the agent has no queue.
        """
        ack_wait_s = await streams.ack_wait_s(self._bus.js, self._agent)
        for lane in self._lanes:
            await lane.start()
        self._beating = asyncio.create_task(self._beat(ack_wait_s / 3))

    async def drain(self, deadline_s: float) -> None:
        """Take no more tasks, let those in work finish within `deadline_s`, cancel the rest."""
        self._is_draining = True
        for lane in self._lanes:
            await lane.stop()
        if self._running:
            await asyncio.wait(list(self._running), timeout=deadline_s)
        for task in list(self._running):
            task.cancel(CancelReason.HANDED_OVER)
        if self._running:
            await asyncio.wait(list(self._running), timeout=5.0)
        if self._beating is not None:
            self._beating.cancel()

    async def _work(self, delivery: Delivery) -> None:
        """Hand over a task, and requeue it if this process stops before it is settled."""
        try:
            task = await self._task_of(delivery)
            if task is not None:
                await self._handle(task, delivery)
        except asyncio.CancelledError:
            await delivery.nak()
            raise
        except BusError as error:
            log.warning("%s: %s; the task will be delivered again", delivery.subject, error)

    async def _task_of(self, delivery: Delivery) -> Task | None:
        """Return the task of a delivery; None if it is not a task, which is then dead-lettered and acknowledged.

        Raises:
            BusError: the task cannot be read now.
        """
        try:
            task = await read_task(self._bus, delivery.data)
            if delivery.subject.split(".")[2:] != [task.run, subjects.instance(task.agent, "agent")]:
                raise BadMessage(f"run {task.run} and agent {task.agent} do not belong on {delivery.subject}")
            return task
        except (BadMessage, RecursionError) as error:
            reason = f"not a task: {error}"
            await store_dead_letter(
                self._bus, "agent", delivery.subject, reason, delivery.data, sequence=delivery.sequence
            )
            await delivery.ack()
            return None

    def _start(self, delivery: Delivery, lane: _Lane) -> bool:
        """Begin to handle a task; return False if this process is already handling it.

        After a silence of this process, or of the server, a task is delivered again to the first client that asks. The
        process that still has it can beat and acknowledge with its first delivery.
        """
        if delivery.sequence in self._sequences:
            return False
        self._sequences.add(delivery.sequence)
        work = delivery.nak() if self._is_draining else self._work(delivery)
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = delivery
        task.add_done_callback(functools.partial(self._finished, lane))
        return True

    def _finished(self, lane: _Lane, task: asyncio.Task[None]) -> None:
        lane.free_slot()
        self._sequences.discard(self._running.pop(task).sequence)
        if not task.cancelled() and task.exception() is not None:
            log.error("task not settled, it will be delivered again", exc_info=task.exception())

    async def _beat(self, every_s: float) -> None:
        """Notify the server that the tasks in flight are being worked on."""
        while True:
            await asyncio.sleep(every_s)
            for delivery in list(self._running.values()):
                try:
                    await delivery.in_progress()
                except BusError:
                    break


class _Lane:
    """One consumer and the slots for its tasks."""

    def __init__(self, bus: Bus, consumer: str, slots: int, start: Callable[[Delivery, _Lane], bool]) -> None:
        self._bus = bus
        self._slots = slots
        self._start = start
        self._used = 0
        self._num_arrived = 0
        self.num_pending = 0  # in the queue, as of the last delivery
        self._room = asyncio.Event()
        self._pull = Pull(bus, streams.TASKS, consumer, self._on_delivery)
        self._asking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._pull.on_end = self._room.set
        self._bus.on_reconnect(self._pull.reset)
        await self._pull.start()
        self._asking = asyncio.create_task(self._ask())

    @property
    def is_full(self) -> bool:
        return self._used >= self._slots

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        await self._pull.stop()

    def free_slot(self) -> None:
        """Free the slot of a task that is settled."""
        self._used -= 1
        self._room.set()

    def _on_delivery(self, delivery: Delivery) -> None:
        self._num_arrived += 1
        self.num_pending = delivery.num_pending
        if self._start(delivery, self):
            self._used += 1
        self._room.set()

    async def _ask(self) -> None:
        """Keep as many tasks asked for as there are free slots, in batches."""
        arrived_before = -1
        while True:
            self._room.clear()
            wanted = min(self._slots - self._used, ASK_AT_ONCE)
            outstanding = self._pull.outstanding
            # Asking again for every single free slot would double the messages of a busy agent.
            if wanted - outstanding >= max(1, wanted // 2):
                if outstanding == 0 and arrived_before == self._num_arrived:
                    await asyncio.sleep(EMPTY_PAUSE_S)
                arrived_before = self._num_arrived
                try:
                    await self._pull.ask(wanted - outstanding)
                except BusError as error:
                    log.warning("cannot ask for tasks: %s", error)
                    await asyncio.sleep(1.0)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(Pull.EXPIRES_S):
                        await self._room.wait()
