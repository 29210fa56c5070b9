"""Whose turn it is: queues share the workers' time by weight.

Each queue has an account of the time that its tasks used, divided by its weight. The next slot goes to the queue whose
account is lowest, counting what its tasks in flight are expected to use. This is start-time fair queueing (Goyal, Vin
and Cheng 1997, https://doi.org/10.1109/90.649569) with the mean duration in place of a known length. A queue that had
no tasks continues where the others are: time in which it wanted nothing is not saved up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Account:
    """The worker time of one queue's tasks, for its weight."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.is_idle = True  # had no tasks to take when it was looked at last
        self.num_running = 0
        self._used_s = 0.0  # divided by the weight at that time
        self._as_of = 0.0

    def used(self, now: float) -> float:
        """Return the seconds used so far, for the weight."""
        self._used_s += self.num_running * max(0.0, now - self._as_of) / self.weight
        self._as_of = now
        return self._used_s

    def set_weight(self, weight: float, from_: float, now: float) -> None:
        """Change the weight; what was used beyond `from_` stays the same number of seconds."""
        beyond = self.used(now) - from_
        self._used_s = from_ + beyond * self.weight / weight
        self.weight = weight

    def catch_up(self, to: float, now: float) -> None:
        """Discard unused time."""
        self._used_s = max(self.used(now), to)


class Shares:
    """Gives turns to the accounts of queues."""

    def __init__(self) -> None:
        self._mean_s = 1.0
        self._reached = 0.0  # by the accounts that had a turn

    def next(self, candidates: Sequence[tuple[Account, int]], now: float) -> int:
        """Return the position of the one whose turn it is.

        Args:
            candidates: accounts of queues with tasks, each with how many were asked for that have not arrived.
            now: seconds on a clock that never goes back.
        """
        busy = [account.used(now) for account, _ in candidates if not account.is_idle]
        floor = max(self._reached, min(busy, default=0.0))
        for account, _ in candidates:
            if account.is_idle:
                account.catch_up(floor, now)
                account.is_idle = False

        def expected(position: int) -> float:
            account, num_asked = candidates[position]
            return account.used(now) + (account.num_running + num_asked) * self._mean_s / account.weight

        position = min(range(len(candidates)), key=expected)
        self._reached = max(self._reached, candidates[position][0].used(now))
        return position

    def weigh(self, account: Account, weight: float, now: float, others: Iterable[Account] = ()) -> None:
        """Change the weight of an account from now on.

        Args:
            others: accounts of other queues, of which one that gets a larger weight begins with the lowest: tasks in
                flight, which have yet to be counted, can keep them behind it for as long as such a task takes.
        """
        from_ = self._reached
        if weight > account.weight:
            from_ = min([from_, *(other.used(now) for other in others if not other.is_idle)])
        account.set_weight(weight, from_, now)

    def start(self, account: Account, now: float) -> None:
        """Count a task as running."""
        account.used(now)
        account.num_running += 1

    def end(self, account: Account, started: float, now: float) -> None:
        """Count a task as ended."""
        account.used(now)
        account.num_running -= 1
        # The latest task counts for a tenth of the mean.
        self._mean_s += 0.1 * (now - started - self._mean_s)
