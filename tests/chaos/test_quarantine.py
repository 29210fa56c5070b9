"""Who may work at once in an agent process in which a task may be that kills it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gymq
from gymq.agent import Rollout
from gymq.bus import Bus, BusError, streams
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.quarantine import Quarantine, Suspect, SuspectCall, SuspectCalls
from gymq.execution import attempts as attempts_module
from gymq.execution.attempts import Attempts
from gymq.execution.journal import MAX_ALONE, Journal
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import FailureClass, Task, ToolResult
from gymq.resources import Verdict
from tests.support.waiting import until, until_answer


class Worker:
    """A task that works until its event is set."""

    def __init__(self, quarantine: Quarantine, *, suspect: bool) -> None:
        self.quarantine = quarantine
        self.suspect: Suspect | None = None
        self.is_at_work = False
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._suspect() if suspect else self._trusted())

    async def _trusted(self) -> None:
        async with self.quarantine.trusted():
            await self._work()

    async def _suspect(self) -> None:
        async with self.quarantine.suspect() as self.suspect:
            await self._work()
            self.suspect.clear()

    async def _work(self) -> None:
        self.is_at_work = True
        await self._end.wait()
        self.is_at_work = False

    @property
    def alone(self) -> bool:
        assert self.suspect is not None
        return self.suspect.alone

    async def end(self) -> None:
        self._end.set()
        await self._task
        await settle()

    async def give_up(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await settle()


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def quarantine() -> Quarantine:
    return Quarantine()


async def test_trusted_tasks_work_all_at_once(quarantine: Quarantine) -> None:
    workers = [Worker(quarantine, suspect=False) for _ in range(5)]
    await settle()
    assert all(worker.is_at_work for worker in workers)
    for worker in workers:
        await worker.end()


async def test_the_first_suspect_waits_until_it_is_alone_and_stays_alone(quarantine: Quarantine) -> None:
    before = Worker(quarantine, suspect=False)
    await settle()
    first, second = (Worker(quarantine, suspect=True) for _ in range(2))
    after = Worker(quarantine, suspect=False)
    await settle()
    assert [worker.is_at_work for worker in (first, second, after)] == [False] * 3
    await before.end()
    assert first.is_at_work
    assert first.alone
    assert [worker.is_at_work for worker in (second, after)] == [False] * 2
    await first.end()
    assert second.is_at_work
    assert not second.alone
    assert after.is_at_work
    await second.end()
    await after.end()


async def test_a_suspect_that_gets_further_than_before_is_trusted_while_it_works(quarantine: Quarantine) -> None:
    first, second, third = (Worker(quarantine, suspect=True) for _ in range(3))
    fresh = Worker(quarantine, suspect=False)
    await settle()
    assert first.suspect is not None
    for _ in range(2):  # the second time changes nothing
        first.suspect.clear()
        await settle()
        assert [worker.is_at_work for worker in (first, second, third, fresh)] == [True, True, True, True]
    assert not second.alone
    for worker in (first, second, third, fresh):
        await worker.end()
    again = Worker(quarantine, suspect=False)
    await settle()
    assert again.is_at_work
    await again.end()


async def test_a_suspect_that_has_ended_is_counted_no_more(quarantine: Quarantine) -> None:
    given_back = Worker(quarantine, suspect=True)
    await settle()
    assert given_back.suspect is not None
    await given_back.give_up()
    given_back.suspect.clear()  # by an entry of its journal that was still on its way
    first, second, fresh = (Worker(quarantine, suspect=suspect) for suspect in (True, True, False))
    await settle()
    assert [worker.is_at_work for worker in (first, second, fresh)] == [True, False, False]
    for worker in (first, second, fresh):
        await worker.end()


async def test_suspects_that_end_well_let_more_work_at_once(quarantine: Quarantine) -> None:
    workers = [Worker(quarantine, suspect=True) for _ in range(10)]
    widths = []
    while any(not worker._task.done() for worker in workers):
        await settle()
        at_work = [worker for worker in workers if worker.is_at_work]
        widths.append(len(at_work))
        for worker in at_work:
            worker._end.set()
        await asyncio.wait([worker._task for worker in at_work])
    assert widths[0] == 1
    assert max(widths) >= 4


async def test_a_suspect_that_is_given_back_proves_nothing(quarantine: Quarantine) -> None:
    first, second, fresh = (Worker(quarantine, suspect=suspect) for suspect in (True, True, False))
    await settle()
    await first.give_up()
    assert second.is_at_work
    assert second.alone
    assert not fresh.is_at_work
    await second.end()
    assert fresh.is_at_work
    await fresh.end()


async def test_a_suspect_that_stops_waiting_holds_nobody_up(quarantine: Quarantine) -> None:
    running = Worker(quarantine, suspect=False)
    await settle()
    waiting = Worker(quarantine, suspect=True)
    fresh = Worker(quarantine, suspect=False)
    await settle()
    assert not fresh.is_at_work
    await waiting.give_up()
    assert fresh.is_at_work
    await running.end()
    await fresh.end()


def lost(times: int) -> SuspectCall:
    return SuspectCall("env", f"r/{times}/0", times)


def test_calls_that_lost_two_workers_run_one_first_and_one_more_after_each_that_ends() -> None:
    calls = SuspectCalls()
    with calls.place(lost(2)), pytest.raises(RolloutError) as error, calls.place(lost(2)):
        pass
    assert error.value.failure_class is FailureClass.SATURATED
    with calls.place(lost(2)), calls.place(lost(2)):
        pass


def test_a_call_that_lost_three_workers_runs_alone_among_them() -> None:
    calls = SuspectCalls()
    for _ in range(5):
        with calls.place(lost(2)):
            pass
    with calls.place(lost(2)), pytest.raises(RolloutError), calls.place(lost(3)):
        pass
    with calls.place(lost(3)), pytest.raises(RolloutError), calls.place(lost(2)):
        pass
    with calls.place(lost(2)), calls.place(lost(2)):
        pass


# The journal of a suspect ---------------------------------------------------------------------------------------------


async def suspect_of_a_new_process() -> Suspect:
    """The place of the first suspect there."""
    async with Quarantine().suspect() as suspect:
        return suspect


ROW = b'{"responses_create_params": {"input": "?"}}'


def task_of(run: str) -> Task:
    return Task(run=run, task_index=0, rollout_index=0, num_rollouts=1, agent="agent", row=ROW, timeout_s=60.0)


async def deliver(bus: Bus, run: str, *, quarantined: bool = True) -> tuple[Journal, Suspect | None]:
    """What a process has of the task that is killed, or not, after what the test does with it."""
    suspect = await suspect_of_a_new_process() if quarantined else None
    journal = Journal(bus, task_of(run), "worker", suspect)
    assert not await journal.take_over()
    return journal, suspect


async def why_it_is_given_up(bus: Bus, run: str) -> str:
    return await Journal(bus, task_of(run), "worker", await suspect_of_a_new_process()).take_over()


async def turn(journal: Journal, number: int) -> None:
    async def perform() -> ToolResult:
        return ToolResult(output=str(number))

    reply = await journal.effect(f"turn {number}", False, perform)
    assert reply == ToolResult(output=str(number))


async def test_a_process_that_dies_with_one_rollout_where_the_one_before_died_is_killed_by_it(
    bus: Bus, run: str
) -> None:
    journal, _ = await deliver(bus, run, quarantined=False)
    await turn(journal, 1)
    journal, suspect = await deliver(bus, run)
    await turn(journal, 1)
    assert suspect is not None
    assert not suspect.is_cleared  # a replay proves nothing
    for _ in range(2):  # however often it is delivered from now on
        assert "on nothing else" in await why_it_is_given_up(bus, run)


async def test_a_rollout_that_got_further_alone_is_innocent_when_its_process_dies(bus: Bus, run: str) -> None:
    for last in range(1, MAX_ALONE + 1):
        journal, suspect = await deliver(bus, run)
        assert suspect is not None
        for number in range(1, last + 1):
            assert not suspect.is_cleared
            await turn(journal, number)
        assert suspect.is_cleared
    assert f"{MAX_ALONE} agent processes died" in await why_it_is_given_up(bus, run)


async def test_a_rollout_is_innocent_when_its_process_stops_or_has_been_alive_for_long(bus: Bus, run: str) -> None:
    for _ in range(MAX_ALONE + 2):
        journal, suspect = await deliver(bus, run)
        await journal.survived()
        assert suspect is not None
        assert suspect.is_cleared
    await deliver(bus, run)
    assert await why_it_is_given_up(bus, run)


async def test_a_new_attempt_alone_proves_nothing(bus: Bus, run: str) -> None:
    journal, suspect = await deliver(bus, run)
    assert suspect is not None
    await journal.start_attempt(1, 1)
    assert not suspect.is_cleared
    assert await why_it_is_given_up(bus, run)


# A suspect that waits -------------------------------------------------------------------------------------------------


class Waiting(gymq.Agent):
    """Works until it is cancelled."""

    async def run(self, rollout: Rollout) -> Verdict:
        await asyncio.Event().wait()
        raise AssertionError


class Failing(gymq.Agent):
    """Fails, which another attempt may cure."""

    async def run(self, rollout: Rollout) -> Verdict:
        raise RolloutError(FailureClass.SATURATED, "no room")


@asynccontextmanager
async def at_work(bus: Bus, run: str, agent: type[gymq.Agent] = Waiting) -> AsyncIterator[Suspect]:
    """A suspect whose process is stopped in the end."""
    suspect = await suspect_of_a_new_process()
    attempts = Attempts(bus, Calls(bus), agent(name="agent"), worker="worker")
    working = asyncio.create_task(attempts.outcome(task_of(run), 3, suspect))
    await until_answer(lambda: bus.js.last(streams.JOURNAL, subjects.JOURNAL.of(*task_of(run).rollout_id)))
    yield suspect
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()


async def test_a_process_that_stops_does_not_blame_its_suspect(bus: Bus, run: str) -> None:
    async with at_work(bus, run) as suspect:
        assert not suspect.is_cleared
    await deliver(bus, run)


class Cut(gymq.Agent):
    """Loses the server."""

    async def run(self, rollout: Rollout) -> Verdict:
        raise BusError("no answer")


async def test_a_process_that_loses_the_server_does_not_blame_its_suspect(bus: Bus, run: str) -> None:
    suspect = await suspect_of_a_new_process()
    attempts = Attempts(bus, Calls(bus), Cut(name="agent"), worker="worker")
    with pytest.raises(BusError, match="no answer"):
        await attempts.outcome(task_of(run), 3, suspect)
    await deliver(bus, run)


async def test_a_first_entry_without_an_answer_does_not_blame_the_suspect(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bus.js.publish_or_last

    async def store_without_an_answer(*arguments: Any, **options: Any) -> None:
        await store(*arguments, **options)
        monkeypatch.setattr(bus.js, "publish_or_last", store)
        raise BusError("no answer")

    monkeypatch.setattr(bus.js, "publish_or_last", store_without_an_answer)
    attempts = Attempts(bus, Calls(bus), Cut(name="agent"), worker="worker")
    with pytest.raises(BusError, match="no answer"):
        await attempts.outcome(task_of(run), 3, await suspect_of_a_new_process())
    await deliver(bus, run)


async def test_a_process_that_stops_before_it_begins_does_not_blame_its_suspect(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Attempts._check_unsettled

    async def check_without_end(attempts: Attempts, task: Task) -> None:
        await check(attempts, task)
        if await bus.js.last(streams.JOURNAL, subjects.JOURNAL.of(*task.rollout_id)):
            await asyncio.Event().wait()

    monkeypatch.setattr(Attempts, "_check_unsettled", check_without_end)
    async with at_work(bus, run) as suspect:
        assert not suspect.is_cleared
    await deliver(bus, run)


async def test_a_process_that_stops_between_attempts_does_not_blame_its_suspect(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pausing = asyncio.Event()

    def pause_s(*_: object, **__: object) -> float:
        pausing.set()
        return 1000.0

    monkeypatch.setattr(attempts_module._Work, "pause_s", pause_s)
    async with at_work(bus, run, Failing):
        await pausing.wait()
    await deliver(bus, run)


async def test_a_suspect_that_waits_for_long_is_cleared(bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "SUSPECTED_S", 0.01)
    async with at_work(bus, run) as suspect:
        await until(lambda: suspect.is_cleared)
