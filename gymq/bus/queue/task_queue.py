"""The tasks of one agent instance: pulled into free slots, kept alive while they are worked on, settled in the end.

Each run has a queue of its own for each agent, and a free slot is offered to one of them by their shares. Nothing is
asked for that could not start at once: tasks wait in the queue, where another process finds them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from gymq.authoring import current_call
from gymq.bus import Bus, BusError, Msg, streams
from gymq.bus.jetstream import Code, JetStreamError
from gymq.bus.pull import Delivery
from gymq.bus.queue.dead_letters import store_dead_letter
from gymq.bus.queue.lanes import Lane, SlotsLeft, pause_s
from gymq.bus.queue.shares import Shares
from gymq.bus.queue.steering import Steered
from gymq.bus.queue.tasks import UnreadableTask, read_task
from gymq.failures import CancelReason
from gymq.processes.background import is_set_within
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, Steering, Task

log = logging.getLogger("gymq.agent")

ASK_AT_ONCE = 256
WATCH_S = 1.0  # for tasks that may come


class TaskQueue:
    """Hands tasks to `handle`, as many at once as there are slots; urgent ones find slots of their own."""

    def __init__(
        self,
        bus: Bus,
        agent: str,
        slots: int,
        handle: Callable[[Task, Delivery], Coroutine[Any, Any, None]],
        *,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Prepare to take the tasks of one agent instance.

        Args:
            slots: most tasks at once, beside the urgent ones.
            handle: works on a task and acknowledges its delivery. If it is cancelled, the task is requeued at once; if
                it ends otherwise without an acknowledgement, the task is delivered again after a while.
            room: returns how many more tasks may start for now; None: as many as there are slots.
        """
        self._bus = bus
        self._agent = agent
        self._slots = slots
        self._urgent_slots = max(1, slots // 8)  # beyond the others
        self._handle = handle
        self._room = room
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._sequences: set[int] = set()  # of the tasks running
        self._num_urgent = 0  # of the tasks running
        self._num_started = 0
        self._lanes: dict[str, Lane] = {}  # by the name of the consumer
        self._shares = Shares()
        self._steered = Steered(bus, self._steer)
        self._changed = asyncio.Event()
        self._announced = asyncio.Event()
        self._opened: set[str] = set()  # runs whose queues were opened since the last look
        self._background: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._is_draining = False

    @property
    def load(self) -> int:
        """Tasks in work."""
        return len(self._running)

    @property
    def num_held_back(self) -> int:
        """Tasks in the queues that find no slot, as of the last delivery; 0 while slots are free."""
        left = self._slots_left()
        lanes = [lane for lane in self._lanes.values() if not lane.is_paused]
        return sum(lane.num_pending for lane in lanes if left.for_(lane.is_urgent) <= 0)

    def unread(self) -> dict[str, int]:
        """Return how many tasks wait for a process of another version, by the reason why this one cannot read them."""
        counts: Counter[str] = Counter()
        for lane in self._lanes.values():
            if lane.unread:
                counts[lane.unreadable] += len(lane.unread) + lane.num_pending
        return counts

    async def start(self) -> None:
        """Begin to take tasks.

        Raises:
            BusError: the agent has no queue.
        """
        ack_wait_s = await streams.ack_wait_s(self._bus.js, self._agent)
        await self._steered.listen()
        await self._bus.subscribe(subjects.OPENED.of(subjects.EACH, self._agent), self._on_opened)
        self._bus.on_reconnect(self._reset)
        self._announced.set()
        self._background = [asyncio.create_task(work()) for work in (self._keep_lanes, self._ask)]
        self._beating = asyncio.create_task(self._beat(ack_wait_s / 3))

    async def drain(self, deadline_s: float) -> None:
        """Take no more tasks, let those in work finish within `deadline_s`, cancel the rest."""
        self._is_draining = True
        for work in self._background:
            work.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(lane.pull.stop() for lane in self._lanes.values()))
        if self._running:
            await asyncio.wait(list(self._running), timeout=deadline_s)
        for task in list(self._running):
            task.cancel(CancelReason.HANDED_OVER)
        if self._running:
            await asyncio.wait(list(self._running), timeout=5.0)
        if self._beating is not None:
            self._beating.cancel()

    async def _work(self, delivery: Delivery, lane: Lane) -> None:
        """Hand over a task, and requeue it if this process stops before it is settled."""
        current_call.set(replace(current_call.get(), precedence=lane.precedence))
        try:
            task = await self._task_of(delivery, lane)
            if task is not None:
                await self._handle(task, delivery)
        except asyncio.CancelledError:
            await delivery.nak()
            raise
        except BusError as error:
            log.warning("%s: %s; the task will be delivered again", delivery.subject, error)

    async def _task_of(self, delivery: Delivery, lane: Lane) -> Task | None:
        """Return the task of a delivery; None if it has none for this process.

        What is not a task is dead-lettered and acknowledged; a task that only another version can read is left for
        the processes of that version. The janitor ends it after its last delivery.
        """
        try:
            try:
                task = await read_task(self._bus, delivery.data)
            except UnreadableTask as error:
                self._check_place(error.task, delivery)
                lane.rest(delivery, str(error))
                await delivery.nak(after_s=pause_s(delivery.num_delivered))
                return None
            self._check_place(task, delivery)
            lane.resume()
            return task
        except (BadMessage, RecursionError) as error:
            reason = f"not a task: {error}"
            await store_dead_letter(
                self._bus, "agent", delivery.subject, reason, delivery.data, sequence=delivery.sequence
            )
            await delivery.ack()
            return None

    def _check_place(self, task: Task, delivery: Delivery) -> None:
        if delivery.subject.split(".")[2:] != [task.run, subjects.instance(task.agent, "agent")]:
            raise BadMessage(f"run {task.run} and agent {task.agent} do not belong on {delivery.subject}")

    # Tasks ------------------------------------------------------------------------------------------------------------

    def _start(self, delivery: Delivery, lane: Lane) -> None:
        """Begin to handle a task, unless this process is already handling it.

        After a silence of this process, or of the server, a task is delivered again to the first client that asks. The
        process that still has it can beat and acknowledge with its first delivery.
        """
        self._changed.set()
        if delivery.sequence in self._sequences:
            return
        now = time.monotonic()
        self._sequences.add(delivery.sequence)
        self._num_started += 1
        self._num_urgent += lane.is_urgent
        self._shares.start(lane.account, now)
        if self._is_draining:
            work = delivery.nak()
        elif lane.is_paused:
            # Not before what was asked for ahead of the pause has expired: the same request would get it again.
            work = delivery.nak(after_s=2 * WATCH_S)
        else:
            work = self._work(delivery, lane)
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = delivery
        task.add_done_callback(functools.partial(self._finished, lane, lane.is_urgent, now))

    def _finished(self, lane: Lane, was_urgent: bool, started: float, task: asyncio.Task[None]) -> None:
        self._shares.end(lane.account, started, time.monotonic())
        self._num_urgent -= was_urgent
        lane.may_have_more = True  # where the run has a limit, there is room for one now
        self._changed.set()
        delivery = self._running.pop(task)
        if not delivery.is_void:
            self._sequences.discard(delivery.sequence)
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

    # Queues -----------------------------------------------------------------------------------------------------------

    async def _on_opened(self, message: Msg) -> None:
        self._opened.add(message.subject.split(".")[2])
        self._announced.set()

    def _reset(self) -> None:
        for lane in self._lanes.values():
            lane.pull.reset()
        self._announced.set()

    def _steer(self, steering: Steering) -> None:
        for lane in self._lanes.values():
            if lane.queue.run == steering.run:
                others = [other.account for other in self._lanes.values() if other is not lane]
                self._shares.weigh(lane.account, lane.steer(steering), time.monotonic(), others)
        self._changed.set()

    async def _keep_lanes(self) -> None:
        """Follow the queues of this agent as they come and go."""
        while True:
            # New queues are announced, but an announcement may be missed.
            await is_set_within(self._announced, 10.0)
            self._announced.clear()
            try:
                queues = await streams.queues(self._bus.js)
                await self._steered.read()  # first: nothing of a paused run is asked for
                for run in list(self._opened):
                    await self._steered.read_again(run)
                    self._opened.discard(run)
                await self._find_lanes(queues)
            except BusError as error:
                if isinstance(error, JetStreamError) and error.code == Code.STREAM_NOT_FOUND:
                    self._void_deliveries()
                log.warning("cannot look for queues: %s", error)
                await asyncio.sleep(1.0)
                self._announced.set()

    def _void_deliveries(self) -> None:
        """Leave unsettled what is in work: the stream of the tasks is gone, and another one counts from 1 again."""
        for delivery in self._running.values():
            delivery.void()
        self._sequences.clear()

    async def _find_lanes(self, queues: dict[str, subjects.TaskQueueName]) -> None:
        agent = subjects.instance(self._agent, "agent")
        for name in [name for name, lane in self._lanes.items() if name not in queues or lane.is_gone]:
            await self._lanes.pop(name).pull.stop()
        for name, queue in queues.items():
            if queue.agent == agent and name not in self._lanes:
                lane = Lane(
                    self._bus,
                    queue,
                    on_delivery=self._start,
                    on_change=self._changed.set,
                    on_gone=self._announced.set,
                )
                self._shares.weigh(lane.account, lane.steer(self._steered.of(queue.run)), time.monotonic())
                await lane.pull.start()
                self._lanes[name] = lane
        self._changed.set()

    async def _ask(self) -> None:
        """Ask for as many tasks as there are free slots, of the queues whose turn it is."""
        while True:
            self._changed.clear()
            try:
                for lane, count, wait_s in self._plan(time.monotonic()):
                    await lane.pull.ask(count, wait_s=wait_s)
            except BusError as error:
                log.warning("cannot ask for tasks: %s", error)
                await asyncio.sleep(1.0)
            await is_set_within(self._changed, WATCH_S)

    def _slots_left(self) -> SlotsLeft:
        requested = {True: 0, False: 0}
        for lane in self._lanes.values():
            requested[lane.is_urgent] += lane.pull.outstanding
        urgent = self._num_urgent + requested[True]
        free, room = self._slots - len(self._running) + self._num_urgent, self._room()
        if room is not None:
            free = min(free, room)
        return SlotsLeft(free - requested[False], self._urgent_slots, urgent)

    def _plan(self, now: float) -> list[tuple[Lane, int, float]]:
        """Return what to ask for: of which queue, how many tasks, and for how many seconds."""
        lanes = [
            lane for lane in self._lanes.values() if not (lane.is_paused or lane.is_gone or lane.rests_until > now)
        ]
        left = self._slots_left()
        idle = [lane for lane in lanes if lane.is_idle]
        candidates = [lane for lane in lanes if lane.num_missing]
        for urgent in (True, False):
            of_class = [lane for lane in idle if lane.is_urgent is urgent]
            wanted = len(of_class) + sum(lane.num_missing for lane in candidates if lane.is_urgent is urgent)
            if wanted > left.for_(urgent):
                candidates += [lane for lane in of_class if lane.is_due(now, self._num_started, len(of_class))]
        plan = [(lane, count, lane.ask_s) for lane, count in self._turns(candidates, left, now).items()]
        planned = {lane for lane, _, _ in plan}
        unplanned = sorted((lane for lane in idle if lane not in planned), key=lambda lane: lane.looked_at)
        # Where there are more queues to watch than slots, each is watched for a moment.
        wait_s = WATCH_S if left.for_(urgent=False) >= len(unplanned) else 0.1
        for lane in unplanned:
            free = left.for_(lane.is_urgent)
            if free > 0:
                # The queue of another run may be opened at any time, and its first task needs a slot.
                count = 1 if len(lanes) > 1 else min(max(1, free - 1), ASK_AT_ONCE)
                left.take(count, urgent=lane.is_urgent)
                plan.append((lane, count, wait_s))
        for lane, _, _ in plan:
            lane.looked(now, self._num_started)
        return plan

    def _turns(self, candidates: list[Lane], left: SlotsLeft, now: float) -> Counter[Lane]:
        """Give the slots that are left to queues with tasks; return how many tasks to take of each."""
        turns: Counter[Lane] = Counter()
        while turns.total() < ASK_AT_ONCE:
            fitting = [lane for lane in candidates if left.for_(lane.is_urgent) > 0]
            if not fitting:
                break
            # The first task of an urgent queue never waits for the others' time to be up.
            first = [lane for lane in fitting if lane.is_urgent and not lane.in_flight and not turns[lane]]
            among = first or fitting
            position = self._shares.next([(lane.account, lane.pull.outstanding + turns[lane]) for lane in among], now)
            lane = among[position]
            most = max(1, lane.num_missing) - turns[lane]
            count = min(most, left.for_(lane.is_urgent), ASK_AT_ONCE) if len(fitting) == 1 else 1
            turns[lane] += count
            left.take(count, urgent=lane.is_urgent)
            if count == most:
                candidates.remove(lane)
        return turns
