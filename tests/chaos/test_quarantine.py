"""Who may work at once in an agent process in which a task may be that kills it."""

import asyncio

import pytest

from gymq.bus.rpc.quarantine import Quarantine, SuspectCalls
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass


class Worker:
    """A task that works until its event is set."""

    def __init__(self, quarantine: Quarantine, *, suspect: bool) -> None:
        self.quarantine = quarantine
        self.alone: bool | None = None
        self.is_at_work = False
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._suspect() if suspect else self._trusted())

    async def _trusted(self) -> None:
        async with self.quarantine.trusted():
            await self._work()

    async def _suspect(self) -> None:
        async with self.quarantine.suspect() as self.alone:
            await self._work()
            self.quarantine.succeeded()

    async def _work(self) -> None:
        self.is_at_work = True
        await self._end.wait()
        self.is_at_work = False

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


def test_calls_that_lost_two_workers_run_one_first_and_one_more_after_each_that_ends() -> None:
    calls = SuspectCalls()
    with calls.place(2), pytest.raises(RolloutError) as error, calls.place(2):
        pass
    assert error.value.failure_class is FailureClass.SATURATED
    with calls.place(2), calls.place(2):
        pass


def test_a_call_that_lost_three_workers_runs_alone_among_them() -> None:
    calls = SuspectCalls()
    for _ in range(5):
        with calls.place(2):
            pass
    with calls.place(2), pytest.raises(RolloutError), calls.place(3):
        pass
    with calls.place(3), pytest.raises(RolloutError), calls.place(2):
        pass
    with calls.place(2), calls.place(2):
        pass
