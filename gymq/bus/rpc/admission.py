"""Hold rollouts back while the KV caches of a model's replicas are full.

The next turn of a rollout costs little only while its conversation is in the cache. Where more rollouts take turns than
fit, each evicts the others, and every turn computes a whole conversation again. So the oldest rollouts that fit into
the caches together take turns. The younger ones pause at the end of a turn, none is started, and each resumes when
enough of those before it have ended. Urgent ones count as older than all others, and background ones as younger. The
oldest one of each class never waits, so every rollout becomes the oldest and ends.

Where calls wait for a model, more rollouts would only wait too, with all that they hold in memory, and their time
limits would run. So an agent starts no more than keep the replicas busy.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

from gymq.protocol.messages import Priority

FILL = 0.9  # of the caches; the rest is for replies in the making, and for blocks that are not full
FIRST_TOKENS = 4096.0  # that a rollout is taken to need, until some have answered
FEWEST_IN_FLIGHT = 256  # rollouts that an agent may start, however few calls its model answers at a time


class _Class:
    """The rollouts of one priority: those that fit together, and those that are younger."""

    def __init__(self) -> None:
        # What each rollout is taken to need, the oldest first.
        self._fitting: OrderedDict[str, float] = OrderedDict()
        self._younger: OrderedDict[str, float] = OrderedDict()
        self.fitting_total = 0.0
        self.younger_total = 0.0

    def start(self, rollout: str, tokens: float) -> None:
        self._younger[rollout] = tokens
        self.younger_total += tokens

    def needs(self, rollout: str, tokens: float) -> float:
        """Set what a rollout needs, and return the difference to what it needed."""
        is_fitting = rollout in self._fitting
        side = self._fitting if is_fitting else self._younger
        more = tokens - side[rollout]
        side[rollout] = tokens
        if is_fitting:
            self.fitting_total += more
        else:
            self.younger_total += more
        return more

    def end(self, rollout: str) -> None:
        self.fitting_total -= self._fitting.pop(rollout, 0.0)
        self.younger_total -= self._younger.pop(rollout, 0.0)

    def fits(self, rollout: str) -> bool:
        return rollout in self._fitting

    def divide(self, limit: float) -> list[str]:
        """Find the oldest rollouts that fit together, from those that did before, and return those that fit now.

        The very oldest fits in any case. The work is that of the rollouts that change sides, not of all.
        """
        while len(self._fitting) > 1 and self.fitting_total > limit:
            rollout, tokens = self._fitting.popitem()
            self.fitting_total -= tokens
            self._younger[rollout] = tokens
            self._younger.move_to_end(rollout, last=False)
            self.younger_total += tokens
        found = []
        while self._younger:
            rollout, tokens = next(iter(self._younger.items()))
            if self._fitting and self.fitting_total + tokens > limit:
                break
            del self._younger[rollout]
            self.younger_total -= tokens
            self._fitting[rollout] = tokens
            self.fitting_total += tokens
            found.append(rollout)
        return found


class KvBudget:
    """The rollouts of one process that ask one model, and the tokens of its caches that they may use.

    Attributes:
        limit: tokens; None: any number, as long as the model's replicas do not state what they hold.
        most_in_flight: rollouts of one agent; None: any number, as long as no call waits for the replicas.
        mean_tokens: of a conversation after a reply, as of the last hundred replies or so.
    """

    def __init__(self) -> None:
        self.limit: int | None = None
        self.most_in_flight: int | None = None
        self._classes = {priority: _Class() for priority in Priority}
        self._class_of: dict[str, _Class] = {}  # by rollout
        self.mean_tokens = FIRST_TOKENS
        self._paused: dict[str, list[asyncio.Future[None]]] = {}

    @property
    def num_paused(self) -> int:
        """Rollouts that wait at the end of a turn."""
        return len(self._paused)

    def share(self, num_tokens: int, num_callers: int) -> None:
        """Set the limit to what the replicas of the model state.

        Args:
            num_tokens: that all their caches hold; 0: they do not say.
            num_callers: processes that ask them, this one among them; each gets the same part.
        """
        limit = int(FILL * num_tokens / max(1, num_callers)) or None
        if limit != self.limit:
            self.limit = limit
            self._resume()

    def follow(self, running: int, waiting: int) -> None:
        """Follow the calls of the model's replicas: where some wait, as many more as run are enough to wait."""
        self.most_in_flight = max(FEWEST_IN_FLIGHT, 2 * running) if waiting else None

    def room(self) -> int | None:
        """Return how many more rollouts may start by what the caches hold; None: any number."""
        if self.limit is None:
            return None
        if not self._class_of:
            return max(1, int(self.limit / self.mean_tokens))
        return 0 if self._paused else max(0, int((self.limit - self._total()) / self.mean_tokens))

    def start(self, rollout: str, priority: Priority = Priority.NORMAL) -> None:
        """Count a rollout from now on, with as many tokens as others have on average."""
        self._class_of[rollout] = self._classes[priority]
        self._classes[priority].start(rollout, self.mean_tokens)

    def answered(self, rollout: str, tokens: int) -> None:
        """Follow a rollout's conversation, whose tokens its last reply states."""
        of_class = self._class_of.get(rollout)
        if not tokens or of_class is None:
            return
        self.mean_tokens += (tokens - self.mean_tokens) / 64
        if of_class.needs(rollout, max(tokens, self.mean_tokens)) < 0:  # a young rollout will grow
            self._resume()

    def end(self, rollout: str) -> None:
        """Forget a rollout, and resume those that fit now."""
        self._class_of.pop(rollout).end(rollout)
        self._resume()

    async def turn(self, rollout: str) -> None:
        """Wait until a rollout fits together with those that are older. One that was not started does not wait."""
        while not self._fits(rollout):
            resumed = asyncio.get_running_loop().create_future()
            self._paused.setdefault(rollout, []).append(resumed)
            try:
                await resumed
            finally:
                waiting = self._paused.get(rollout, [])
                if resumed in waiting:  # it was cancelled
                    waiting.remove(resumed)
                    if not waiting:
                        del self._paused[rollout]

    def _resume(self) -> None:
        """Resume the rollouts that fit, after the limit or what counts towards it has changed."""
        if self._paused:
            self._divide()

    def _total(self) -> float:
        return sum(of_class.fitting_total + of_class.younger_total for of_class in self._classes.values())

    def _fits(self, rollout: str) -> bool:
        of_class = self._class_of.get(rollout)
        if self.limit is None or of_class is None or self._total() <= self.limit:
            return True
        self._divide()
        return of_class.fits(rollout)

    def _divide(self) -> None:
        """Find the rollouts that fit together, the urgent ones first, and resume what fits now."""
        left = math.inf if self.limit is None else float(self.limit)
        for of_class in self._classes.values():
            for rollout in of_class.divide(left):
                for resumed in self._paused.pop(rollout, ()):
                    if not resumed.done():
                        resumed.set_result(None)
            left -= of_class.fitting_total
