"""Calls whose worker is in the caller's process: they do not leave it, and nothing else is different."""

import asyncio
import contextlib
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import CancelReason, RolloutError
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.messages import FailureClass, Generated, Seed, Seeded, ToolCall, ToolResult, Verified, Verify
from gymq.redaction import hide_credential
from gymq.testing import reply
from tests.execution.test_resources_runner import ROW, Connect, Counter
from tests.support.scripted_replica import ScriptedReplica, ask, call
from tests.support.waiting import DEADLINE_S, until


class Process:
    """A process with one scripted service, and what other processes hear of its calls."""

    def __init__(self, bus: Bus, listener: Bus, run: str) -> None:
        self.subject = subjects.MODEL.of(run)
        self.replica = ScriptedReplica(bus, f"{run}-here")
        self.calls = Calls(bus, self.replica.server)
        self.heard: list[str] = []
        self._listener = listener

    async def start(self, limit: int = 100) -> "Process":
        await self.replica.serve(self.subject, limit=limit)
        await self._listener.listen(f"{self.subject}.>", lambda message: self.heard.append(message.subject))
        await self._listener.listen(self.subject, lambda message: self.heard.append(message.subject))
        await self._listener.flush()
        return self


@pytest.fixture
async def process(bus: Bus, other_bus: Bus, run: str) -> Process:
    return await Process(bus, other_bus, run).start()


async def elsewhere(connect: Connect, url: str, process: Process) -> ScriptedReplica:
    """Another process of the same service."""
    bus = await connect(url)
    replica = ScriptedReplica(bus, f"{process.replica.worker}-other")
    await replica.serve(process.subject)
    return replica


async def test_a_call_does_not_leave_the_process(bus: Bus, other_bus: Bus, process: Process) -> None:
    assert (await call(process.calls, process.subject, ask()))["worker"] == process.replica.worker
    await bus.flush()
    await other_bus.flush()
    assert process.heard == []


async def test_what_is_changed_on_one_side_is_not_changed_on_the_other(process: Process) -> None:
    given: list[int] = [1]
    answered: dict[str, Any] = {"list": [1]}

    async def change() -> Generated:
        return Generated(response=answered)

    process.replica.action = change
    first = await call(process.calls, process.subject, ask(action=True, given=given))
    first["list"].append(2)
    given.append(2)
    assert (await call(process.calls, process.subject, ask(action=True)))["list"] == [1]


async def test_a_key_of_the_options_is_cut_out_of_a_reply(process: Process) -> None:
    key = "not-so-secret-0123456789abcdef"
    hide_credential(key)
    process.replica.action = lambda: Generated(response={"text": f"your key is {key}"})
    assert await call(process.calls, process.subject, ask(action=True)) == {"text": "your key is ***"}


async def test_what_has_no_wire_form_fails_as_it_does_between_processes(process: Process) -> None:
    with pytest.raises(RolloutError, match="has no wire form") as refused:
        await call(process.calls, process.subject, ask(odd=2**70))
    assert refused.value.failure_class is FailureClass.BAD_REQUEST
    process.replica.action = lambda: Generated(response={"odd": 2**70})
    with pytest.raises(RolloutError, match="has no wire form"):
        await call(process.calls, process.subject, ask(action=True))


async def test_a_caller_is_free_at_its_deadline_even_if_the_worker_does_not_stop(process: Process) -> None:
    async def stubborn() -> Generated:
        while not process.replica.go.is_set():
            try:
                await process.replica.go.wait()
            except asyncio.CancelledError:
                continue
        return Generated(response={})

    process.replica.action = stubborn
    with pytest.raises(RolloutError) as late:
        await call(process.calls, process.subject, ask(action=True, timeout_s=0.2))
    assert late.value.failure_class is FailureClass.DEADLINE_EXCEEDED
    process.replica.go.set()
    await until(lambda: process.replica.service.load == 0)


async def test_a_call_that_is_cancelled_is_stopped(process: Process) -> None:
    calling = asyncio.create_task(call(process.calls, process.subject, ask("r", wait=True)))
    await until(lambda: process.replica.started == ["r"])
    calling.cancel()
    await until(lambda: process.replica.cancelled == ["r"])
    assert process.replica.service.load == 0


async def test_no_more_calls_run_than_may(bus: Bus, other_bus: Bus, run: str) -> None:
    process = await Process(bus, other_bus, run).start(limit=2)
    calling = [asyncio.create_task(call(process.calls, process.subject, ask(f"{n}", wait=True))) for n in range(5)]
    await until(lambda: process.replica.service.load == 5)
    assert len(process.replica.started) == 2
    process.replica.go.set()
    assert len(await asyncio.gather(*calling)) == 5


async def test_many_calls_at_once_are_all_answered(bus: Bus, other_bus: Bus, run: str) -> None:
    process = await Process(bus, other_bus, run).start(limit=300)
    await asyncio.gather(*(call(process.calls, process.subject, ask(f"{n}")) for n in range(200)))
    assert sorted(map(int, process.replica.started)) == list(range(200))
    assert process.heard == []


async def test_a_call_that_failed_here_may_be_answered_elsewhere(
    process: Process, connect: Connect, shared_url: str
) -> None:
    def full() -> Generated:
        raise RolloutError(FailureClass.SATURATED, "no room")

    other = await elsewhere(connect, shared_url, process)
    process.replica.action = full
    other.action = lambda: Generated(response={"worker": other.worker})
    assert (await call(process.calls, process.subject, ask(action=True)))["worker"] == other.worker


async def test_a_service_that_leaves_has_its_calls_answered_elsewhere(
    process: Process, connect: Connect, shared_url: str
) -> None:
    other = await elsewhere(connect, shared_url, process)
    await process.replica.server.leave()
    assert (await call(process.calls, process.subject, ask()))["worker"] == other.worker


async def test_calls_that_a_process_stops_are_made_elsewhere(
    process: Process, connect: Connect, shared_url: str
) -> None:
    other = await elsewhere(connect, shared_url, process)
    calling = asyncio.create_task(call(process.calls, process.subject, ask("r", wait=True)))
    await until(lambda: process.replica.started == ["r"])
    other.go.set()
    await process.replica.server.drain(0.0)
    assert (await calling)["worker"] == other.worker


async def test_a_model_of_the_process_is_asked_before_others(
    bus: Bus, process: Process, connect: Connect, shared_url: str
) -> None:
    await elsewhere(connect, shared_url, process)
    calls = RoutedCalls(process.calls, Routes(bus, process.replica.server))
    for number in range(8):
        reply_ = await calls.call(process.subject, ask(f"{number}"))
        assert isinstance(reply_, Generated)
        assert reply_.response["worker"] == process.replica.worker


@pytest.fixture
async def resources(bus: Bus, run: str) -> Any:
    """A stateful environment of the process, and the calls of the process."""
    replica = ScriptedReplica(bus, f"{run}-here")
    runner = ResourcesRunner(Counter(name=run), KillableProcesses())
    await replica.server.start()
    await runner.serve(replica.server)
    yield Calls(bus, replica.server), runner
    await replica.server.drain(0.0)
    await runner.close()


def add(number: int) -> ToolCall:
    return ToolCall(rollout="r", timeout_s=60.0, number=number, name="add", arguments='{"amount": 2}')


async def seeded(calls: Calls, name: str) -> str:
    answer = await calls.call(subjects.SEED.of(name), Seed(rollout="r", timeout_s=60.0, row=ROW))
    assert isinstance(answer, Seeded)
    assert answer.session is not None
    return answer.session


async def test_a_session_that_was_opened_here_answers_other_processes_too(
    resources: Any, run: str, other_bus: Bus
) -> None:
    here, _ = resources
    async with asyncio.timeout(DEADLINE_S):
        session = await seeded(here, run)
        assert await here.call(session, add(1)) == ToolResult(output="2")
        assert await Calls(other_bus).call(session, add(2)) == ToolResult(output="4")
        assert await here.call(session, add(2)) == ToolResult(output="4")
        verify = Verify(rollout="r", timeout_s=60.0, number=3, row=ROW, response=reply("done"))
        assert await here.call(session, verify) == Verified(reward=4.0, verdict={"amounts": [2, 2]})


async def test_a_call_of_a_session_runs_on_when_its_rollout_is_handed_over(
    resources: Any, run: str, other_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runner = resources
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_state: Any, _name: str, _arguments: Any) -> str:
        begun.set()
        await go.wait()
        return "done once"

    monkeypatch.setattr(runner.local.resources, "call_tool", slow)
    async with asyncio.timeout(DEADLINE_S):
        session = await seeded(here, run)
        calling = asyncio.create_task(here.call(session, add(1)))
        await begun.wait()
        calling.cancel(CancelReason.HANDED_OVER)
        await asyncio.wait([calling])
        again = asyncio.create_task(Calls(other_bus).call(session, add(1)))
        go.set()
        assert await again == ToolResult(output="done once")


async def test_a_session_that_opens_after_its_caller_left_is_closed(
    resources: Any, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runner = resources
    begun = asyncio.Event()

    async def stubborn(_row: Any) -> list[int]:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return []

    monkeypatch.setattr(runner.local.resources, "open", stubborn)
    calling = asyncio.create_task(seeded(here, run))
    await begun.wait()
    assert runner.local.sessions
    calling.cancel()
    await until(lambda: not runner.local.sessions)


async def test_the_context_of_a_caller_does_not_reach_the_worker(process: Process) -> None:
    seen: list[str] = []

    def look() -> Generated:
        seen.append(gymq.authoring.current_call.get().rollout)
        return Generated(response={})

    process.replica.action = look
    callers = [asyncio.create_task(call(process.calls, process.subject, ask(f"{n}", action=True))) for n in range(4)]
    await asyncio.gather(*callers)
    assert sorted(seen) == ["0", "1", "2", "3"]
