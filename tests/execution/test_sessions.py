"""Sessions: each call runs once, in order, on the state it belongs to; no verdict is ever made up."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import gymq
from gymq.execution.sessions import LocalResources
from gymq.failures import ComponentFailed, InvalidTask, JudgeFailed, RolloutError, ToolError
from gymq.processes import KillableProcesses
from gymq.protocol.messages import (
    Close,
    Closed,
    FailureClass,
    Seed,
    Seeded,
    Stage,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.resources import Verdict, awaited
from gymq.testing import Harness, prompt, reply
from tests.support.waiting import DEADLINE_S, until

PROMPT = prompt("count")


class Row(gymq.Row):
    start: int = 0


class Counter(gymq.Resources[Row, dict[str, int]]):
    """Counts, slowly where asked to; notes everything that happens."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.go = asyncio.Event()
        self.open_go: asyncio.Event | None = None
        self.closing: Callable[[], Any] = lambda: None
        self.verdict: Callable[[], Any] = lambda: Verdict(1.0)

    async def open(self, row: Row) -> dict[str, int]:
        self.events.append(f"open {row.start}")
        if self.open_go is not None:
            await self.open_go.wait()
        if row.start < 0:
            raise ToolError(422, "start must not be negative")
        return {"count": row.start}

    async def close(self, state: dict[str, int]) -> None:
        self.events.append(f"close {state['count']}")
        self.closing()

    @gymq.tool
    async def add(self, state: dict[str, int], amount: int) -> int:
        """Add."""
        self.events.append(f"add {amount}")
        await asyncio.sleep(0)
        state["count"] += amount
        return state["count"]

    @gymq.tool
    async def wait(self, state: dict[str, int]) -> int:
        """Add one, once it may continue."""
        self.events.append("wait")
        await self.go.wait()
        state["count"] += 1
        return state["count"]

    @gymq.tool
    async def fail(self, how: str) -> Any:
        """Fail."""
        self.events.append(f"fail {how}")
        errors: dict[str, BaseException] = {
            "value": ValueError("bad value"),
            "tool": ToolError(418, "a teapot"),
            "rollout": ComponentFailed("the search engine is away"),
            "exit": SystemExit(3),
            "surrogate": ValueError("half \ud800"),
        }
        raise errors[how]

    @gymq.tool
    async def give(self, what: str) -> Any:
        """Give something."""
        things: dict[str, Any] = {
            "text": "plain",
            "none": None,
            "list": [1, "\u00e9"],
            "surrogate": "half \ud800",
            "object": object(),
            "nan": float("nan"),
        }
        return things[what]

    async def verify(self, request: gymq.VerifyRequest[Row, dict[str, int]]) -> Verdict:
        self.events.append("verify")
        verdict: Verdict = await awaited(self.verdict())
        return verdict


@pytest.fixture
def author() -> Counter:
    return Counter()


@pytest.fixture
def worker(author: Counter) -> LocalResources:
    return LocalResources(author)


def tool_call(number: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(rollout="r", timeout_s=60.0, number=number, name=name, arguments=json.dumps(arguments))


def verify_call(number: int = 99, row: dict[str, Any] | None = None, response: Any = None) -> Verify:
    body = json.dumps(PROMPT | (row or {})).encode()
    return Verify(rollout="r", timeout_s=60.0, number=number, row=body, response=response or reply("done"))


async def opened(worker: LocalResources, **row: Any) -> str:
    """The id of a session seeded with a row."""
    seed = Seed(rollout="r", timeout_s=60.0, row=json.dumps(PROMPT | row).encode())
    seeded = await worker.open(seed, "*")
    assert seeded.session is not None
    return seeded.session


async def output(worker: LocalResources, session: str, call: ToolCall) -> Any:
    result = await worker.in_session(session, call)
    assert isinstance(result, ToolResult)
    return json.loads(result.output)


async def failure(work: Any) -> RolloutError:
    with pytest.raises(RolloutError) as error:
        await work
    return error.value


# A session's life --------------------------------------------------------------------------------------------------


async def test_a_session_is_seeded_used_verified_and_closed(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker, start=3)
    assert await output(worker, session, tool_call(1, "add", amount=2)) == 5
    assert await worker.in_session(session, verify_call(2)) == Verified(reward=1.0)
    assert await worker.in_session(session, Close(rollout="r", timeout_s=60.0)) == Closed()
    assert author.events == ["open 3", "add 2", "verify", "close 5"]
    assert not worker.sessions


async def test_sessions_have_states_of_their_own(worker: LocalResources) -> None:
    sessions = [await opened(worker, start=number) for number in range(20)]
    counts = [await output(worker, session, tool_call(1, "add", amount=1)) for session in sessions]
    assert counts == list(range(1, 21))


async def test_an_unknown_session_is_lost(worker: LocalResources) -> None:
    error = await failure(worker.in_session("nobody", tool_call(1, "add", amount=1)))
    assert (error.failure_class, error.retryable) == (FailureClass.SESSION_LOST, True)


async def test_a_closed_session_is_lost(worker: LocalResources) -> None:
    session = await opened(worker)
    await worker.close(session)
    error = await failure(worker.in_session(session, verify_call()))
    assert error.failure_class is FailureClass.SESSION_LOST


async def test_closing_twice_is_no_error(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    for _ in range(2):
        assert await worker.in_session(session, Close(rollout="r", timeout_s=60.0)) == Closed()
    assert author.events == ["open 0", "close 0"]


async def test_a_session_closes_after_the_calls_that_came_before(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    calls = [asyncio.create_task(worker.in_session(session, call)) for call in (tool_call(1, "wait"), verify_call(2))]
    await until(lambda: "wait" in author.events)
    closing = asyncio.create_task(worker.close(session))
    author.go.set()
    await asyncio.gather(*calls, closing)
    assert author.events == ["open 0", "wait", "verify", "close 1"]


async def test_seeding_again_gives_back_the_old_state(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker, start=1)
    again = Seed(rollout="r", timeout_s=60.0, row=json.dumps(PROMPT | {"start": 5}).encode())
    assert await worker.in_session(session, again) == Seeded(session=None)
    assert await output(worker, session, tool_call(1, "add", amount=1)) == 6
    assert author.events == ["open 1", "close 1", "open 5", "add 1"]


async def test_a_session_that_is_not_seeded_tells_the_model_so(worker: LocalResources, author: Counter) -> None:
    seeded = await worker.open(Seed(rollout="r", timeout_s=60.0, row=None), "*")
    assert seeded.session is not None
    result = await worker.in_session(seeded.session, tool_call(1, "add", amount=1))
    assert isinstance(result, ToolResult)
    assert (result.status, "not seeded" in result.output) == (400, True)
    assert author.events == []


async def test_a_state_may_be_none(author: Counter) -> None:
    class Stateless(gymq.Resources[Row]):
        async def open(self, row: Row) -> None:
            return None

        @gymq.tool
        async def look(self, state: None) -> str:
            """Look."""
            return repr(state)

    worker = LocalResources(Stateless())
    session = await opened(worker)
    result = await worker.in_session(session, tool_call(1, "look"))
    assert result == ToolResult(output="None")


# Numbered calls ----------------------------------------------------------------------------------------------------


async def test_a_repeated_number_is_answered_from_memory(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    for _ in range(3):
        assert await output(worker, session, tool_call(1, "add", amount=1)) == 1
    assert author.events.count("add 1") == 1


async def test_a_repeated_failure_is_answered_from_memory(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    for _ in range(2):
        error = await failure(worker.in_session(session, tool_call(1, "fail", how="rollout")))
        assert error.failure_class is FailureClass.COMPONENT_FAILED
    assert author.events.count("fail rollout") == 1


async def test_a_repeated_verification_is_answered_from_memory(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    verdicts = iter((Verdict(0.25), Verdict(0.75)))
    author.verdict = lambda: next(verdicts)
    for _ in range(2):
        assert await worker.in_session(session, verify_call(1)) == Verified(reward=0.25)


async def test_numbers_that_come_while_the_first_runs_wait_for_it(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    requests = [asyncio.create_task(output(worker, session, tool_call(1, "wait"))) for _ in range(10)]
    await until(lambda: "wait" in author.events)
    author.go.set()
    assert await asyncio.gather(*requests) == [1] * 10
    assert author.events.count("wait") == 1


async def test_a_call_continues_while_somebody_waits_for_it(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    given_up, repeated = (asyncio.create_task(output(worker, session, tool_call(1, "wait"))) for _ in range(2))
    await until(lambda: "wait" in author.events)
    given_up.cancel()
    await asyncio.wait([given_up])
    author.go.set()
    assert await repeated == 1
    assert author.events.count("wait") == 1


async def test_a_call_that_was_stopped_never_runs_again(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    stopped = asyncio.create_task(worker.in_session(session, tool_call(1, "wait")))
    await until(lambda: "wait" in author.events)
    stopped.cancel()
    await asyncio.wait([stopped])
    author.go.set()
    error = await failure(worker.in_session(session, tool_call(1, "wait")))
    assert error.failure_class is FailureClass.SESSION_LOST
    assert author.events.count("wait") == 1


async def test_a_call_that_was_stopped_before_it_ran_may_run(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    running = asyncio.create_task(output(worker, session, tool_call(1, "wait")))
    waiting = asyncio.create_task(output(worker, session, tool_call(2, "add", amount=5)))
    await until(lambda: "wait" in author.events)
    waiting.cancel()
    await asyncio.wait([waiting])
    author.go.set()
    await running
    assert await output(worker, session, tool_call(2, "add", amount=5)) == 6
    assert author.events.count("add 5") == 1


async def test_calls_of_a_session_run_in_the_order_they_came(worker: LocalResources, author: Counter) -> None:
    session = await opened(worker)
    calls = [tool_call(number, "add", amount=number) for number in range(50)]
    await asyncio.gather(*(worker.in_session(session, call) for call in calls))
    assert author.events[1:] == [f"add {number}" for number in range(50)]


async def test_sessions_run_side_by_side(worker: LocalResources, author: Counter) -> None:
    sessions = [await opened(worker) for _ in range(50)]
    calls = [asyncio.create_task(worker.in_session(session, tool_call(1, "wait"))) for session in sessions]
    await until(lambda: author.events.count("wait") == 50)
    author.go.set()
    await asyncio.gather(*calls)


# Limits ------------------------------------------------------------------------------------------------------------


async def test_no_more_sessions_than_allowed_are_open_or_being_opened(author: Counter) -> None:
    class Few(Counter):
        max_sessions = 5

    few = Few()
    few.open_go = asyncio.Event()
    worker = LocalResources(few)
    opening = [asyncio.create_task(opened(worker)) for _ in range(20)]
    await until(lambda: len(few.events) == 5)
    few.open_go.set()
    results = await asyncio.gather(*opening, return_exceptions=True)
    refused = [result for result in results if isinstance(result, RolloutError)]
    assert len(worker.sessions) == 5
    assert len(refused) == 15
    assert {error.failure_class for error in refused} == {FailureClass.SATURATED}


async def test_a_session_that_could_not_be_seeded_takes_no_room(worker: LocalResources) -> None:
    assert (await failure(opened(worker, start=-1))).failure_class is FailureClass.INVALID_TASK
    assert not worker.sessions


async def test_a_session_that_is_cancelled_while_it_is_seeded_takes_no_room(
    worker: LocalResources, author: Counter
) -> None:
    author.open_go = asyncio.Event()
    opening = asyncio.create_task(opened(worker))
    await until(lambda: author.events)
    opening.cancel()
    await asyncio.wait([opening])
    assert not worker.sessions


def test_a_session_is_not_idle_while_its_agent_waits_for_the_model() -> None:
    options = gymq.AgentOptions()
    assert gymq.Resources.session_ttl_s > options.model_timeout_s + options.tool_timeout_s


async def test_idle_sessions_are_closed_and_others_are_not(
    worker: LocalResources, author: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy, used = [await opened(worker, start=number) for number in (1, 2, 3)]
    running = asyncio.create_task(worker.in_session(busy, tool_call(1, "wait")))
    await until(lambda: "wait" in author.events)
    now = worker.sessions[used].last_used
    monkeypatch.setattr("gymq.execution.sessions.time.monotonic", lambda: now + author.session_ttl_s - 1)
    await worker.in_session(used, tool_call(1, "add", amount=1))
    monkeypatch.setattr("gymq.execution.sessions.time.monotonic", lambda: now + author.session_ttl_s + 1)
    async with asyncio.timeout(DEADLINE_S):
        assert await worker.close_idle() == 1
    assert set(worker.sessions) == {busy, used}
    assert author.events[-1] == "close 1"
    assert idle not in worker.sessions
    author.go.set()
    await running


async def test_a_session_whose_verdict_was_cancelled_is_closed_when_it_is_idle(
    worker: LocalResources, author: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    author.verdict = author.go.wait
    session = await opened(worker)
    verifying = asyncio.create_task(worker.in_session(session, verify_call()))
    await until(lambda: "verify" in author.events)
    assert worker.sessions[session].is_busy
    verifying.cancel()
    await asyncio.wait([verifying])
    monkeypatch.setattr(Counter, "session_ttl_s", -1.0)
    await until(lambda: not worker.sessions[session].is_busy)
    assert await worker.close_idle() == 1


async def test_a_state_that_cannot_be_closed_keeps_no_other_from_being_closed(
    worker: LocalResources, author: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await opened(worker, start=number)

    def fail() -> None:
        raise OSError("no such container")

    author.closing = fail
    monkeypatch.setattr(Counter, "session_ttl_s", -1.0)
    assert await worker.close_idle() == 5
    assert not worker.sessions
    assert len([event for event in author.events if event.startswith("close")]) == 5


# Rows and tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"start": "many"}, "row does not fit Counter: start"),
        ({"start": None}, "row does not fit Counter: start"),
        ({"responses_create_params": {}}, "row does not fit Counter: responses_create_params"),
        ({"responses_create_params": None}, "row does not fit Counter: responses_create_params"),
        ({"start": -1}, "start must not be negative"),
    ],
)
async def test_a_row_that_does_not_fit_is_an_invalid_task(worker: LocalResources, row: Any, text: str) -> None:
    error = await failure(opened(worker, **row))
    assert (error.failure_class, error.stage, error.retryable) == (FailureClass.INVALID_TASK, Stage.SEED, False)
    assert text in error.message


@pytest.mark.parametrize("row", [b"", b"\xff", b"[]", b"null", b"{", b'{"a": 1}', b"[" * 100_000])
async def test_a_row_that_is_no_row_is_an_invalid_task(worker: LocalResources, row: bytes) -> None:
    error = await failure(worker.open(Seed(rollout="r", timeout_s=60.0, row=row), "*"))
    assert error.failure_class is FailureClass.INVALID_TASK
    assert not worker.sessions


@pytest.mark.parametrize(
    ("name", "arguments", "status", "text"),
    [
        ("nothing", "{}", 404, "there is no tool named 'nothing'"),
        ("verify", "{}", 404, "there is no tool"),
        ("open", "{}", 404, "there is no tool"),
        ("close", "{}", 404, "there is no tool"),
        ("seed", "{}", 404, "there is no tool"),
        ("call_tool", "{}", 404, "there is no tool"),
        ("__init__", "{}", 404, "there is no tool"),
        ("", "{}", 404, "there is no tool"),
        ("add", "{}", 422, "amount"),
        ("add", '{"amount": "many"}', 422, "amount"),
        ("add", "[1]", 422, ""),
        ("add", "null", 422, "amount"),
        ("add", "{", 422, "Invalid tool call arguments"),
        ("add", "", 422, "Invalid tool call arguments"),
        ("add", "[" * 100_000, 422, "Invalid tool call arguments"),
        ("add", "9" * 10_000, 422, "Invalid tool call arguments"),
        ("fail", '{"how": "value"}', 500, "fail failed: ValueError: bad value"),
        ("fail", '{"how": "tool"}', 418, "a teapot"),
        ("fail", '{"how": "surrogate"}', 500, "half"),
        ("give", '{"what": "object"}', 500, "give failed: TypeError"),
    ],
)
async def test_what_goes_wrong_in_a_tool_is_told_to_the_model(
    worker: LocalResources, name: str, arguments: str, status: int, text: str
) -> None:
    session = await opened(worker)
    call = ToolCall(rollout="r", timeout_s=60.0, number=1, name=name, arguments=arguments)
    result = await worker.in_session(session, call)
    assert isinstance(result, ToolResult)
    assert result.status == status
    assert text in json.loads(result.output)["error"]


@pytest.mark.parametrize(
    ("what", "output"),
    [("text", "plain"), ("none", "null"), ("list", '[1,"\u00e9"]'), ("surrogate", "half ?"), ("nan", "NaN")],
)
async def test_what_a_tool_returns_is_the_output_that_the_model_sees(
    worker: LocalResources, what: str, output: str
) -> None:
    session = await opened(worker)
    assert await worker.in_session(session, tool_call(1, "give", what=what)) == ToolResult(output=output)


async def test_a_service_that_a_tool_needs_is_not_the_models_fault(worker: LocalResources) -> None:
    session = await opened(worker)
    error = await failure(worker.in_session(session, tool_call(1, "fail", how="rollout")))
    assert error.failure_class is FailureClass.COMPONENT_FAILED


async def test_a_tool_that_exits_does_not_end_the_worker(worker: LocalResources) -> None:
    session = await opened(worker)
    with pytest.raises(Exception, match="SystemExit: 3"):
        await worker.in_session(session, tool_call(1, "fail", how="exit"))
    assert await output(worker, session, tool_call(2, "add", amount=1)) == 1


# Verdicts ----------------------------------------------------------------------------------------------------------


def raises(error: BaseException) -> Callable[[], Any]:
    def verdict() -> Any:
        raise error

    return verdict


def changed(reward: Any) -> Verdict:
    verdict = Verdict(1.0)
    verdict.reward = reward
    return verdict


NO_VERDICTS: list[tuple[Callable[[], Any], FailureClass]] = [
    (lambda: None, FailureClass.VERIFIER_FAILED),
    (lambda: "1.0", FailureClass.VERIFIER_FAILED),
    (lambda: {"reward": 1.0}, FailureClass.VERIFIER_FAILED),
    (lambda: (1.0,), FailureClass.VERIFIER_FAILED),
    (lambda: Verdict, FailureClass.VERIFIER_FAILED),
    (lambda: Verdict(float("nan")), FailureClass.VERIFIER_FAILED),
    (lambda: Verdict(float("inf")), FailureClass.VERIFIER_FAILED),
    (lambda: Verdict(float("-inf")), FailureClass.VERIFIER_FAILED),
    (lambda: Verdict("1.0"), FailureClass.VERIFIER_FAILED),  # type: ignore[arg-type]
    (lambda: Verdict(b"1"), FailureClass.VERIFIER_FAILED),  # type: ignore[arg-type]
    (lambda: Verdict(None), FailureClass.VERIFIER_FAILED),  # type: ignore[arg-type]
    (lambda: Verdict([1.0]), FailureClass.VERIFIER_FAILED),  # type: ignore[arg-type]
    (lambda: changed("1.0"), FailureClass.VERIFIER_FAILED),
    (lambda: changed(None), FailureClass.VERIFIER_FAILED),
    (raises(ValueError("bad")), FailureClass.VERIFIER_FAILED),
    (raises(TimeoutError()), FailureClass.VERIFIER_FAILED),
    (raises(AssertionError()), FailureClass.VERIFIER_FAILED),
    (raises(RecursionError()), FailureClass.VERIFIER_FAILED),
    (raises(InvalidTask("no answer in the row")), FailureClass.INVALID_TASK),
    (raises(ToolError(422, "no answer in the row")), FailureClass.INVALID_TASK),
    (raises(JudgeFailed("the judge is away")), FailureClass.JUDGE_FAILED),
    (raises(ComponentFailed("the sandbox is away")), FailureClass.COMPONENT_FAILED),
]


@pytest.mark.parametrize(("verdict", "failure_class"), NO_VERDICTS)
async def test_what_is_no_verdict_is_a_failure_and_never_a_number(
    worker: LocalResources, author: Counter, verdict: Callable[[], Any], failure_class: FailureClass
) -> None:
    author.verdict = verdict
    session = await opened(worker)
    error = await failure(worker.in_session(session, verify_call()))
    assert error.failure_class is failure_class
    assert error.message


@pytest.mark.parametrize(("given", "reward"), [(1, 1.0), (True, 1.0), (0, 0.0), (-2.5, -2.5), (1e-300, 1e-300)])
async def test_a_verdict_is_a_reward_and_what_else_the_verifier_says(
    worker: LocalResources, author: Counter, given: Any, reward: float
) -> None:
    author.verdict = lambda: Verdict(given, exact=True, parts=[1, 2])
    session = await opened(worker)
    verified = await worker.in_session(session, verify_call())
    assert verified == Verified(reward=reward, verdict={"exact": True, "parts": [1, 2]})


@pytest.mark.parametrize("response", [{"output": None}, {"output": "x"}, {"output": [1]}, {"x": 1}])
async def test_a_response_that_is_none_is_an_invalid_task(
    worker: LocalResources, author: Counter, response: Any
) -> None:
    session = await opened(worker)
    error = await failure(worker.in_session(session, verify_call(response=response)))
    assert (error.failure_class, error.stage) == (FailureClass.INVALID_TASK, Stage.VERIFY)
    assert "verify" not in author.events


async def test_a_row_that_does_not_fit_the_verifier_is_an_invalid_task(worker: LocalResources) -> None:
    session = await opened(worker)
    error = await failure(worker.in_session(session, verify_call(row={"start": "many"})))
    assert (error.failure_class, "start" in error.message) == (FailureClass.INVALID_TASK, True)


# Workers without state ---------------------------------------------------------------------------------------------


class Pure(gymq.Resources[Row]):
    """Keeps no state."""

    @gymq.tool
    async def double(self, amount: int) -> int:
        """Double."""
        return 2 * amount

    async def verify(self, request: gymq.VerifyRequest[Row]) -> Verdict:
        return Verdict(float(request.row.start))


async def test_a_worker_without_state_needs_no_session() -> None:
    worker = LocalResources(Pure())
    seed = Seed(rollout="r", timeout_s=60.0, row=json.dumps(PROMPT).encode())
    assert await worker.open(seed, "*") == Seeded(session=None)
    assert not worker.sessions
    assert await worker.without_session(tool_call(1, "double", amount=4)) == ToolResult(output="8")
    assert await worker.without_session(verify_call(row={"start": 3})) == Verified(reward=3.0)


async def test_a_worker_without_state_remembers_no_numbers() -> None:
    worker = LocalResources(Pure())
    results = [await worker.without_session(tool_call(1, "double", amount=number)) for number in (1, 2)]
    assert results == [ToolResult(output="2"), ToolResult(output="4")]


async def test_a_worker_with_state_answers_a_call_without_session_as_a_lost_one(worker: LocalResources) -> None:
    """So that who remembers that it kept no state, before it was changed, seeds a session again."""
    for call in (tool_call(1, "add", amount=1), verify_call()):
        assert (await failure(worker.without_session(call))).failure_class is FailureClass.SESSION_LOST


# Verifiers in processes --------------------------------------------------------------------------------------------


async def test_a_verifier_that_is_not_async_runs_in_a_process(processes: KillableProcesses, authors: Any) -> None:
    worker = LocalResources(authors.Verifier(), processes)
    verified = await worker.without_session(verify_call(row={"deed": "good"}))
    assert verified == Verified(reward=0.5, verdict={"note": "fine"})


@pytest.mark.parametrize(
    ("deed", "text"),
    [
        ("loop", "did not finish its verify in time"),
        ("stubborn loop", "did not finish its verify in time"),
        ("exit", "the process ended with exit code 7"),
        ("kill", "the process ended with exit code -9"),
        ("sys.exit", "the process exited with status 3"),
        ("raise", "ValueError: wrong value"),
        ("raise what cannot be pickled", "NoPickle"),
        ("raise what cannot be unpickled", "NoUnpickle"),
        ("recurse", "RecursionError"),
        ("none", "returned NoneType"),
        ("no number", "returned str, neither a Verdict nor a number"),
        ("nan", "the reward nan"),
        ("infinite", "the reward inf"),
        ("more than it declares", "the reward 1.5, its reward_range is 0 to 1"),
        ("text", "a reward must be a number"),
        ("text later", "the reward '1.0'"),
        ("nothing", "TypeError"),
        ("something else", "returned str, neither a Verdict nor a number"),
        ("what cannot be pickled", "no wire form"),
        ("no such deed", "KeyError"),
    ],
)
async def test_whatever_a_verifier_in_a_process_does_there_is_no_made_up_verdict(
    processes: KillableProcesses, authors: Any, deed: str, text: str
) -> None:
    worker = LocalResources(authors.Verifier(), processes)
    async with asyncio.timeout(DEADLINE_S):
        error = await failure(worker.without_session(verify_call(row={"deed": deed})))
    assert (error.failure_class, error.stage or Stage.VERIFY) == (FailureClass.VERIFIER_FAILED, Stage.VERIFY)
    assert text in error.message


async def test_a_verifier_in_a_process_gets_the_sessions_state(processes: KillableProcesses, authors: Any) -> None:
    worker = LocalResources(authors.StatefulVerifier(), processes)
    verified = await worker.in_session(await opened(worker), verify_call())
    assert isinstance(verified, Verified)
    assert verified.reward == 3.0


async def test_an_author_that_cannot_travel_to_a_process_is_a_failure(
    processes: KillableProcesses, authors: Any
) -> None:
    author = authors.Verifier()
    author.handle = (one for one in "")
    worker = LocalResources(author, processes)
    error = await failure(worker.without_session(verify_call(row={"deed": "good"})))
    assert error.failure_class is FailureClass.VERIFIER_FAILED


async def test_the_event_loop_continues_while_a_verifier_computes(processes: KillableProcesses, authors: Any) -> None:
    worker = LocalResources(authors.Verifier(), processes)
    computing = asyncio.create_task(failure(worker.without_session(verify_call(row={"deed": "loop"}))))
    turns = 0
    while not computing.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 3
    assert (await computing).failure_class is FailureClass.VERIFIER_FAILED


class Repeating(gymq.Resources[gymq.Row]):
    """Repeats in its verdict what the JSON of a reply says."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        said = json.loads(request.reply_text)
        return gymq.Verdict(1.0, said=said, names={"one": [said, ("two", said)]})


async def test_half_of_a_surrogate_pair_in_a_verdict_costs_no_reward():
    async with Harness(Repeating) as env:
        verdict = await env.verify(prompt("q"), reply('"5 \\ud800"'))
    assert (verdict.reward, verdict.fields) == (1.0, {"said": "5 ?", "names": {"one": ["5 ?", ["two", "5 ?"]]}})
