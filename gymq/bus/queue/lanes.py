"""The queue of one run's tasks for one agent, as one process sees it: what waits there, and what it asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from gymq.authoring import Precedence
from gymq.bus import Bus, streams
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue.shares import Account
from gymq.protocol.messages import Priority, Steering
from gymq.protocol.subjects import TaskQueueName

# How much more of the workers a class gets than the next one: it goes first, and starves none.
_FACTORS = {Priority.URGENT: 64.0, Priority.NORMAL: 1.0, Priority.BACKGROUND: 1 / 64}


def pause_s(tries: int) -> float:
    """Return the seconds to wait after so many tries: more after each, and not the same in all processes."""
    return min(60.0, 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)


class SlotsLeft:
    """The slots of an agent that are neither in use nor asked for; a few of them are for urgent tasks alone."""

    def __init__(self, normal: int, extra: int, num_urgent: int) -> None:
        """Count them.

        Args:
            normal: slots for all that no other than urgent tasks occupy.
            extra: further slots for urgent tasks, which are occupied first by these.
            num_urgent: urgent tasks that are running or asked for.
        """
        self._normal = normal
        self._extra = extra
        self._num_urgent = num_urgent

    def for_(self, urgent: bool) -> int:
        """Return how many a class may use."""
        beyond = self._num_urgent - self._extra
        return self._normal - (beyond if urgent else max(0, beyond))

    def take(self, count: int, *, urgent: bool) -> None:
        """Ask for tasks."""
        if urgent:
            self._num_urgent += count
        else:
            self._normal -= count


class Lane:
    """One queue of tasks.

    Attributes:
        num_pending: tasks in the queue that were not delivered, as of the last message from it.
        may_have_more: whether it has tasks that were delivered before, which `num_pending` does not count.
        unread: sequences of the tasks that only another version could read, as of the last look.
        unreadable: why this one could not.
        rests_until: when this process looks for tasks again; until then it leaves them to others.
    """

    def __init__(
        self,
        bus: Bus,
        queue: TaskQueueName,
        *,
        on_delivery: Callable[[Delivery, Lane], None],
        on_change: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.account = Account()
        self.precedence = Precedence()  # of the calls that its tasks make
        self.num_pending = 0
        self.may_have_more = True
        self.is_gone = False
        self.pull = Pull(bus, streams.TASKS, queue.consumer, self._deliver)
        self.pull.on_end, self.pull.on_gone = self._end, self._go
        self._on_delivery, self._on_change, self._on_gone = on_delivery, on_change, on_gone
        self.unread: set[int] = set()
        self.unreadable = ""
        self.rests_until = 0.0
        self._num_rests = 0
        self.looked_at = 0.0
        self._looked_starts = 0
        self.is_paused = self.is_urgent = self.is_limited = False

    def steer(self, steering: Steering | None) -> float:
        """Follow a change of the run's steering; return the weight of the queue's account by it."""
        by_subject = Priority.URGENT if self.queue.kind == "urgent" else Priority.NORMAL
        priority = by_subject if steering is None or steering.priority is None else steering.priority
        self.is_paused = steering is not None and steering.paused
        self.is_limited = steering is not None and steering.max_in_flight is not None
        self.account.is_idle |= self.is_paused  # it does not make up for the pause
        self.is_urgent = priority is Priority.URGENT
        share = 1.0 if steering is None else steering.share
        self.precedence.priority, self.precedence.share = priority, share
        return share * _FACTORS[priority]

    def rest(self, delivery: Delivery, problem: str) -> None:
        """Leave the queue to other processes for a while, since this one cannot read a task of it."""
        now = time.monotonic()
        if now >= self.rests_until:
            self.unread.clear()
            self._num_rests += 1
            self.rests_until = now + pause_s(self._num_rests)
        self.unread.add(delivery.sequence)
        self.unreadable = problem

    def resume(self) -> None:
        """Note that this process can read a task of the queue."""
        self._num_rests = 0

    @property
    def num_missing(self) -> int:
        """Tasks that are known to be in the queue and that nothing was asked for."""
        return max(0, self.num_pending - self.pull.outstanding)

    @property
    def is_idle(self) -> bool:
        """Whether it seems empty, and this process would not hear of a task."""
        return not self.num_pending and not self.pull.outstanding

    @property
    def ask_s(self) -> float:
        """Seconds for which to ask for a task."""
        if self.num_missing:
            # Another process may have been faster.
            return 0.2
        # At its limit, a queue that is not empty lets a request wait that is to end at once.
        return 0.02 if self.is_limited else 0.0

    @property
    def in_flight(self) -> int:
        return self.account.num_running + self.pull.outstanding

    def is_due(self, now: float, num_starts: int, num_idle: int) -> bool:
        """Return whether to look again at a queue that seemed empty.

        Args:
            num_starts: tasks that this process has started so far.
            num_idle: queues that seem empty.
        """
        if self.may_have_more or now - self.looked_at >= 1.0:
            return True
        return num_starts - self._looked_starts >= 8 * num_idle

    def looked(self, now: float, num_starts: int) -> None:
        """Note that the queue was asked."""
        self.looked_at, self._looked_starts = now, num_starts

    def _deliver(self, delivery: Delivery) -> None:
        self.num_pending = delivery.num_pending
        self.may_have_more = True
        self._on_delivery(delivery, self)

    def _end(self) -> None:
        self.num_pending = 0
        self.may_have_more = False
        self.account.is_idle = True
        self._on_change()

    def _go(self) -> None:
        self.is_gone = True
        self._on_gone()
