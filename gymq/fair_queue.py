"""The order in which waiting calls are taken: by class, and in a class by the shares of their runs.

Start-time fair queueing (Goyal, Vin and Cheng 1997, https://doi.org/10.1109/90.649569) between the runs of a class. A
call is charged what calls of its run cost on average, and once it has ended what it did cost. The next call is one of
the run that has been charged least for its share. A run that had no calls waiting continues where the others are.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from gymq.authoring import Precedence
from gymq.protocol.messages import Priority
from gymq.protocol.subjects import RolloutId

AHEAD = 64  # calls of a class that are taken while others wait in a lower one, before one of these
FOLLOW = 1 / 16  # of the difference: how fast the mean cost follows new calls

T = TypeVar("T")


class WaitingRun(Generic[T]):
    """The calls of one run in one class."""

    __slots__ = ("charged", "mean_cost", "name", "num_running", "num_waiting", "of_class", "share", "waiting")

    def __init__(self, name: str, of_class: _Class[T], mean_cost: float) -> None:
        self.name = name
        self.of_class = of_class
        self.mean_cost = mean_cost
        self.charged = 0.0  # for its share
        self.share = 1.0
        self.num_running = 0
        self.num_waiting = 0
        self.waiting: deque[T] = deque()  # and calls that gave up, which are passed over


class _Class(Generic[T]):
    """The runs of one class that have calls."""

    __slots__ = ("num_ahead", "num_waiting", "reached", "runs")

    def __init__(self) -> None:
        self.runs: dict[str, WaitingRun[T]] = {}
        self.num_waiting = 0
        self.num_ahead = 0  # calls that were taken since one of a lower class was
        self.reached = 0.0  # charged, by the runs that had a turn


class FairQueue(Generic[T]):
    """Calls that wait for their turn, and those that had it until they end.

    Taking one needs time for each run that has calls waiting, not for each call.

    Attributes:
        num_waiting: calls that wait.
        num_running: calls that had their turn and have not ended.
    """

    def __init__(self) -> None:
        self._classes: dict[Priority, _Class[T]] = {priority: _Class() for priority in Priority}
        self._normal = self._classes[Priority.NORMAL]
        # Each with its run, and what was charged for it; None: it waits.
        self._calls: dict[T, tuple[WaitingRun[T], float | None]] = {}
        self.num_waiting = 0
        self._mean_cost = 1.0
        self.num_running = 0

    def __contains__(self, call: T) -> bool:
        return call in self._calls

    def add(self, call: T, rollout: str, precedence: Precedence) -> None:
        """Have a call wait.

        Args:
            rollout: "run/task/rollout", or another name; all calls outside of rollouts wait as those of one run.
        """
        priority = precedence.priority
        of_class = self._normal if priority is Priority.NORMAL else self._classes[priority]
        name = RolloutId.run_of(rollout) if "/" in rollout else ""
        run = of_class.runs.get(name)
        if run is None:
            run = of_class.runs[name] = WaitingRun(name, of_class, self._mean_cost)
        if not run.num_waiting and run.charged < of_class.reached:
            run.charged = of_class.reached
        run.share = precedence.share
        run.waiting.append(call)
        self._calls[call] = run, None
        self._count(run, 1)

    def pop(self) -> T:
        """Take the call whose turn it is. One must wait."""
        normal = self._normal
        of_class = normal if normal.num_waiting == self.num_waiting else self._next_class()
        runs = of_class.runs.values()
        run = next(iter(runs)) if len(runs) == 1 else min(filter(_has_waiting, runs), key=self._position)
        call = run.waiting.popleft()
        while call not in self._calls:
            call = run.waiting.popleft()
        self._count(run, -1)
        if of_class.reached < run.charged:
            of_class.reached = run.charged
        run.charged += run.mean_cost / run.share
        run.num_running += 1
        self.num_running += 1
        self._calls[call] = run, run.mean_cost
        return call

    def put_back(self, call: T) -> None:
        """Have a call wait again, as the first of its run, that had its turn in vain."""
        run, charged = self._calls[call]
        assert charged is not None
        run.charged -= charged / run.share
        run.num_running -= 1
        self.num_running -= 1
        run.waiting.appendleft(call)
        self._calls[call] = run, None
        self._count(run, 1)

    def end(self, call: T, cost: float | None = None) -> None:
        """Forget a call that had its turn, or gave up waiting for it.

        Args:
            cost: of the call, above 0; None: unknown, or it had no turn.
        """
        run, charged = self._calls.pop(call)
        if charged is None:
            self._count(run, -1)
        else:
            run.num_running -= 1
            self.num_running -= 1
        if charged is not None and cost is not None:
            run.charged += (cost - charged) / run.share
            run.mean_cost += FOLLOW * (cost - run.mean_cost)
            self._mean_cost += FOLLOW * (cost - self._mean_cost)
        if not run.num_waiting and not run.num_running:
            del run.of_class.runs[run.name]

    def _count(self, run: WaitingRun[T], change: int) -> None:
        run.num_waiting += change
        run.of_class.num_waiting += change
        self.num_waiting += change

    @staticmethod
    def _position(run: WaitingRun[T]) -> float:
        """Return the place of a run among others of its class; the lowest has the next turn."""
        return run.charged

    def _next_class(self) -> _Class[T]:
        waiting = [of_class for of_class in self._classes.values() if of_class.num_waiting]
        for of_class in waiting[:-1]:
            of_class.num_ahead += 1
            if of_class.num_ahead <= AHEAD:
                return of_class
            of_class.num_ahead = 0
        return waiting[-1]


def _has_waiting(run: WaitingRun[T]) -> bool:
    return run.num_waiting > 0
