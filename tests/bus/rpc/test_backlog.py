"""Calls that their process holds back while the workers of their group are full, or gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gymq.authoring import CurrentCall, Precedence, current_call
from gymq.bus import Bus
from gymq.bus.rpc import serving
from gymq.bus.rpc.backlog import Backlog, NoWorker
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.process_reports import OpenCall
from gymq.bus.rpc.tries import Tries
from gymq.failures import RolloutError
from gymq.fair_queue import FairQueue
from gymq.protocol.messages import Call, FailureClass, Priority
from tests.support.scripted_replica import ScriptedReplica, ask, call, limit_patience
from tests.support.waiting import DEADLINE_S, until

NUM_CALLS = 200


class CountedTries(Tries):
    """Counts the requests that are sent."""

    num_sent = 0

    async def once(self, *args: Any, **named: Any) -> Any:
        self.num_sent += 1
        return await super().once(*args, **named)


class CountedCalls(Calls):
    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._tries = CountedTries(bus)

    @property
    def num_sent(self) -> int:
        assert isinstance(self._tries, CountedTries)
        return self._tries.num_sent

    @property
    def num_waiting(self) -> int:
        return sum(bool(open_call.waits_for) for open_call in self.open._open)


@pytest.fixture
def calls(bus: Bus) -> CountedCalls:
    return CountedCalls(bus)


@pytest.fixture
async def full(calls: CountedCalls, other_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch) -> ScriptedReplica:
    """A worker that runs one call and has four waiting, and takes no more before `go`."""
    monkeypatch.setattr(serving, "MOST_WAITING", 4)
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    return replica


def begin(calls: Calls, subject: str, names: list[str], **request: Any) -> list[asyncio.Task[dict[str, Any]]]:
    return [asyncio.create_task(call(calls, subject, ask(name, wait=True, **request))) for name in names]


async def fill(calls: CountedCalls, full: ScriptedReplica, run: str) -> list[asyncio.Task[dict[str, Any]]]:
    begun = begin(calls, run, [f"first/{number}/0" for number in range(5)])
    await until(lambda: full.service.load == 5 and not full.service._subscriptions)
    await until(lambda: not full.server.jobs._background)  # the server knows that it has left
    return begun


async def test_thousands_of_calls_for_a_full_worker_do_not_all_ask_again_and_again(
    calls: CountedCalls, full: ScriptedReplica, run: str
) -> None:
    begun = await fill(calls, full, run)
    begun += begin(calls, run, [f"r/{number}/0" for number in range(NUM_CALLS)])
    await until(lambda: calls.num_waiting == NUM_CALLS)
    sent = calls.num_sent
    backlog = calls._backlogs[run]
    await until(lambda: backlog._num_refused >= 5)
    assert calls.num_sent - sent <= backlog._num_refused
    full.go.set()
    await asyncio.gather(*begun)
    assert calls.num_sent < 4 * NUM_CALLS
    assert len(full.finished) == 5 + NUM_CALLS
    assert (backlog._num_on_way, backlog._queue.num_waiting, backlog._turns) == (0, 0, {})


async def test_calls_that_are_held_back_go_by_the_class_of_their_run(
    calls: CountedCalls, full: ScriptedReplica, run: str
) -> None:
    begun = await fill(calls, full, run)
    current_call.set(CurrentCall("b", float("inf"), Precedence(Priority.BACKGROUND)))
    begun += begin(calls, run, [f"background/{number}/0" for number in range(20)])
    await until(lambda: calls.num_waiting == 20)
    current_call.set(CurrentCall("n", float("inf"), Precedence()))
    begun += begin(calls, run, [f"normal/{number}/0" for number in range(20)])
    await until(lambda: calls.num_waiting == 40)
    full.go.set()
    await asyncio.gather(*begun)
    last_normal = max(position for position, name in enumerate(full.started) if name.startswith("normal"))
    before = [name for name in full.started[:last_normal] if name.startswith("background")]
    assert len(before) <= 2  # at most what tried while the worker was full


class FullWorker:
    """Runs four calls at a time, has up to 64 waiting, and takes more when half of them have started."""

    def __init__(self) -> None:
        self.queue: FairQueue[OpenCall] = FairQueue()
        self.running: list[OpenCall] = []
        self.answers: dict[OpenCall, asyncio.Event] = {}
        self.is_open = True

    def take(self, call: OpenCall, request: Call) -> asyncio.Event | None:
        self.is_open &= self.queue.num_waiting < 64
        if not self.is_open:
            return None
        self.queue.add(call, request.rollout, Precedence(request.priority, request.share))
        self.answers[call] = asyncio.Event()
        return self.answers[call]

    def answer_one(self, tokens: dict[str, int]) -> str:
        while self.queue.num_waiting and len(self.running) < 4:
            self.running.append(self.queue.pop())
        call = self.running.pop(0)
        self.queue.end(call, float(tokens[call.run]))
        self.answers.pop(call).set()
        self.is_open |= self.queue.num_waiting < 32
        return call.run


async def test_runs_get_their_shares_of_a_worker_although_most_of_their_calls_are_held_back() -> None:
    tokens = {"three": 10, "one": 40}  # of each reply
    backlog, worker = Backlog("m"), FullWorker()

    async def one_call(run: str, number: int, share: float) -> None:
        request: Call = ask(f"{run}/{number}/0")
        request.share = share
        open_call = OpenCall(run, "model call")
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        try:
            if not backlog.start():
                request = await backlog.wait(open_call, request, deadline)
            while (answered := worker.take(open_call, request)) is None:
                request = await backlog.refused(open_call, request, deadline)
            backlog.taken(backlog.round)
            await answered.wait()
        finally:
            backlog.end(open_call)

    begun = [asyncio.create_task(one_call("three", number, 3.0)) for number in range(2000)]
    begun += [asyncio.create_task(one_call("one", number, 1.0)) for number in range(2000)]
    used: Counter[str] = Counter()
    for number in range(1500):
        while worker.queue.num_waiting < 16:  # noqa: ASYNC110 - the next ones come after a pause
            await asyncio.sleep(0)
        run = worker.answer_one(tokens)
        used[run] += tokens[run] * (number >= 500)
        await asyncio.sleep(0)
    for task in begun:
        task.cancel()
    await asyncio.wait(begun)
    assert used["three"] / used["one"] == pytest.approx(3.0, rel=0.1)


async def test_calls_that_nobody_serves_fail_together_once_their_budget_is_spent(
    calls: CountedCalls, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_patience(monkeypatch, 0.2)
    begun = begin(calls, run, [f"r/{number}/0" for number in range(NUM_CALLS)])
    failures = await asyncio.gather(*begun, return_exceptions=True)
    assert {type(failure) for failure in failures} == {NoWorker}
    assert calls.num_sent < 2 * NUM_CALLS


async def test_all_calls_go_to_a_worker_that_comes_while_they_wait(
    calls: CountedCalls, other_bus: Bus, run: str
) -> None:
    begun = begin(calls, run, [f"r/{number}/0" for number in range(NUM_CALLS)])
    await until(lambda: calls.num_waiting == NUM_CALLS)
    replica = ScriptedReplica(other_bus, f"{run}-w")
    replica.go.set()
    await replica.serve(run)
    await asyncio.gather(*begun)
    assert len(replica.finished) == NUM_CALLS


async def test_a_call_that_is_held_back_ends_at_its_deadline_or_when_nobody_waits_for_it(
    calls: CountedCalls, full: ScriptedReplica, run: str
) -> None:
    begun = await fill(calls, full, run)
    late, unwanted = begin(calls, run, ["late/0/0"], timeout_s=1.0) + begin(calls, run, ["unwanted/0/0"])
    await until(lambda: calls.num_waiting == 2)
    unwanted.cancel()
    with pytest.raises(RolloutError, match=r"take no more calls .* before its deadline") as failed:
        await late
    assert failed.value.failure_class is FailureClass.DEADLINE_EXCEEDED
    await asyncio.wait([unwanted])
    full.go.set()
    await asyncio.gather(*begun)
    backlog = calls._backlogs[run]
    assert (backlog._num_on_way, backlog._queue.num_waiting, backlog._turns) == (0, 0, {})
    assert len(full.started) == 5
