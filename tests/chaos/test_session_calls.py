"""A numbered call of a session runs once, whatever happens to the requests for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import gymq
from gymq.execution.sessions import LocalResources
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, Message, Seed, ToolCall, ToolResult, Verify
from gymq.testing import prompt, reply
from tests.support.waiting import until

ROW = gymq.Row.model_validate(prompt("count")).model_dump_json().encode()


class Counter:
    def __init__(self) -> None:
        self.total = 0


class Slow(gymq.Resources[gymq.Row, Counter]):
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0
        self.let_go = asyncio.Event()

    async def open(self, row: gymq.Row) -> Counter:
        return Counter()

    @gymq.tool
    async def add(self, state: Counter) -> int:
        """Add one."""
        self.started += 1
        await self.let_go.wait()
        state.total += 1
        return state.total

    @gymq.tool
    async def leave(self, state: Counter) -> int:
        """End the process."""
        raise SystemExit(3)

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, Counter]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        self.started += 1
        await self.let_go.wait()
        return gymq.Verdict(float(state.total))


class Opened:
    """A session, and requests to it."""

    def __init__(self, worker: LocalResources, session: str) -> None:
        self.worker = worker
        self.session = session

    def ask(self, number: int, name: str = "add") -> asyncio.Task[Message]:
        request = ToolCall(rollout="r/0/0", timeout_s=60, number=number, name=name, arguments="{}")
        return asyncio.create_task(self.worker.in_session(self.session, request))

    def verify(self, number: int) -> asyncio.Task[Message]:
        request = Verify(rollout="r/0/0", timeout_s=60, number=number, row=ROW, response=reply("done"))
        return asyncio.create_task(self.worker.in_session(self.session, request))


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def opened(slow: Slow) -> AsyncIterator[Opened]:
    worker = LocalResources(slow)
    seeded = await worker.open(Seed(rollout="r/0/0", timeout_s=60, row=ROW), "*")
    assert seeded.session is not None
    yield Opened(worker, seeded.session)
    slow.let_go.set()
    await worker.close(seeded.session)


async def until_started(slow: Slow, count: int = 1) -> None:
    await until(lambda: slow.started >= count)


async def test_a_repeated_call_runs_once_and_both_are_answered(slow: Slow, opened: Opened) -> None:
    first, second = opened.ask(1), opened.ask(1)
    await until_started(slow)
    slow.let_go.set()
    assert await first == await second == await opened.ask(1) == ToolResult(output="1")
    assert slow.started == 1


async def test_a_call_continues_when_only_one_of_its_requests_is_cancelled(slow: Slow, opened: Opened) -> None:
    given_up, repeated = opened.ask(1), opened.ask(1)
    await until_started(slow)
    given_up.cancel()
    await asyncio.wait([given_up])
    slow.let_go.set()
    assert await repeated == ToolResult(output="1")
    assert slow.started == 1


async def test_a_stopped_call_never_runs_again_and_its_session_is_lost(slow: Slow, opened: Opened) -> None:
    call = opened.ask(1)
    await until_started(slow)
    call.cancel()
    await asyncio.wait([call])
    with pytest.raises(RolloutError) as error:
        await opened.ask(1)
    assert error.value.failure_class is FailureClass.SESSION_LOST
    assert error.value.retryable
    assert slow.started == 1


async def test_a_call_stopped_before_it_ran_may_run_later(slow: Slow, opened: Opened) -> None:
    running, waiting = opened.ask(1), opened.ask(2)
    await until_started(slow)
    waiting.cancel()
    await asyncio.wait([waiting])
    slow.let_go.set()
    assert await running == ToolResult(output="1")
    assert await opened.ask(2) == ToolResult(output="2")


async def test_a_stopped_verification_may_run_again(slow: Slow, opened: Opened) -> None:
    stopped = opened.verify(1)
    await until_started(slow)
    stopped.cancel()
    await asyncio.wait([stopped])
    slow.let_go.set()
    assert await opened.verify(1)
    assert slow.started == 2


async def test_a_tool_that_exits_does_not_end_the_worker(opened: Opened) -> None:
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await opened.ask(1, "leave")
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await opened.ask(1, "leave")
