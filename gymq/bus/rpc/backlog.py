"""Calls that their own process holds back, because the workers that they are for are full.

A full worker leaves its queue group, and a call then finds nobody. Thousands of calls that each ask again and again
would keep their process from everything else. So they wait here. As many are on their way as were taken when others
were refused. Each answer lets another one go, as in TCP (Jacobson 1988, https://doi.org/10.1145/52325.52356), and each
call that is taken makes room for one more. While calls are refused, one at a time tries, after growing pauses.

The runs of a class have calls on their way by their shares, so that the workers always have a choice between runs. The
workers know what calls cost, and divide that by the shares.
"""

from __future__ import annotations

import asyncio
import math

import msgspec

from gymq.authoring import Precedence
from gymq.bus.rpc.process_reports import OpenCall
from gymq.failures import RETRIES, Retry, RolloutError
from gymq.fair_queue import FairQueue, WaitingRun
from gymq.protocol.messages import Call, FailureClass


class NoWorker(RolloutError):
    """No worker took the call; it did not run."""

    def __init__(self, subject: str, num_lost: int = 0) -> None:
        super().__init__(FailureClass.NO_WORKER, f"no worker serves {subject}")
        self.num_lost = num_lost


class _Held(FairQueue[OpenCall]):
    """Takes the next call of the run that has the fewest on their way for its share."""

    @staticmethod
    def _position(run: WaitingRun[OpenCall]) -> float:
        return run.num_running / run.share


class Backlog:
    """The calls of one process for one subject.

    Attributes:
        round: grows each time that calls are refused after others were taken.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.round = 0
        self._most = math.inf  # calls on their way at a time; no limit before one was refused
        self._num_on_way = 0
        self._num_refused = 0  # tries, since a call was taken
        self._served_at = -math.inf  # when a worker was known to live last
        self._reason = ""  # for which calls wait
        self._queue = _Held()
        self._turns: dict[OpenCall, asyncio.Future[bool]] = {}  # of those that wait
        self._timer: asyncio.TimerHandle | None = None  # while calls are refused

    def start(self) -> bool:
        """Count a call as on its way, unless it has to wait for its turn."""
        if self._queue.num_waiting or self._num_on_way >= self._most:
            return False
        self._num_on_way += 1
        return True

    async def wait(self, call: OpenCall, request: Call, deadline: float) -> Call:
        """Wait until a call may go; return its request, with the time that is left.

        Raises:
            RolloutError: there is no time left, or nobody serves the subject.
        """
        loop = asyncio.get_running_loop()
        if call in self._queue:
            self._queue.put_back(call)
        else:
            self._queue.add(call, request.rollout, Precedence(request.priority, request.share))
        call.unserved_since = call.unserved_since or loop.time()
        call.waits_for = self._reason
        turn = self._turns[call] = loop.create_future()
        self._let_go()
        try:
            async with asyncio.timeout_at(deadline):
                is_served = await turn
        except TimeoutError:
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, f"{call.waits_for} before its deadline") from None
        if not is_served:
            raise NoWorker(self._subject, request.num_lost)
        call.waits_for = ""
        return msgspec.structs.replace(request, timeout_s=max(deadline - loop.time(), 0.001))

    async def refused(self, call: OpenCall, request: Call, deadline: float) -> Call:
        """Have a call wait that no worker took; see `wait`."""
        self._num_on_way -= 1
        self._most = max(1, min(self._most, self._num_on_way))
        if self._timer is None:
            self.round += 1
            self._say(is_full=self._num_on_way > 0)
            self._try_later()
        return await self.wait(call, request, deadline)

    def taken(self, sent_in: int) -> None:
        """Note that a worker has a call.

        Args:
            sent_in: the round in which it was sent.
        """
        if sent_in != self.round:
            return
        self._num_refused = 0
        self._served_at = asyncio.get_running_loop().time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue.num_waiting:
            self._most += 1
            self._let_go()

    def is_due(self, call: OpenCall) -> bool:
        """Return whether a call has waited for as long as one may without a worker that is known to live."""
        since = max(call.unserved_since or math.inf, self._served_at)
        return asyncio.get_running_loop().time() - since >= _pauses().budget_s

    def found(self, *, living: bool) -> None:
        """Note whether a worker lives; if none does, the calls end for which a search is due."""
        self._say(is_full=living)
        if living:
            self._served_at = asyncio.get_running_loop().time()
        for call, turn in self._turns.items():
            call.waits_for = self._reason
            if not living and self.is_due(call) and not turn.done():
                turn.set_result(False)

    def end(self, call: OpenCall) -> None:
        """Forget a call, whether it waits or is on its way."""
        if self._turns.pop(call, None) is None:
            self._num_on_way -= 1
        if call in self._queue:
            self._queue.end(call)
        if self._queue.num_waiting:
            self._let_go()

    def _say(self, *, is_full: bool) -> None:
        full = f"workers of {self._subject} take no more calls (max_concurrency)"
        self._reason = full if is_full else f"no worker serves {self._subject}"

    def _let_go(self) -> None:
        while self._timer is None and self._queue.num_waiting and self._num_on_way < self._most:
            self._let_one_go()

    def _let_one_go(self) -> None:
        turn = self._turns.pop(self._queue.pop())
        self._num_on_way += 1
        if not turn.done():  # else it was cancelled, and ends at once
            turn.set_result(True)

    def _try(self) -> None:
        self._timer = None
        if self._queue.num_waiting:
            self._let_one_go()
            self._try_later()

    def _try_later(self) -> None:
        self._num_refused += 1
        pauses = _pauses()
        pause_s = pauses.pause_s(self._num_refused, left_s=math.inf) or pauses.longest_pause_s
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._try)


def _pauses() -> Retry:
    pauses = RETRIES[FailureClass.NO_WORKER].call
    assert pauses is not None
    return pauses
