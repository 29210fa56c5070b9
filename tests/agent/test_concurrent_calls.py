"""Calls of one rollout in flight at the same time: recorded, replayed after a crash, refused where they clash."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import gymq
from gymq import responses
from gymq.agent import Rollout, Session, run_to_verdict
from gymq.bus import Bus, BusError
from gymq.execution import journal as journal_module
from gymq.execution.journal import Journal
from gymq.protocol import subjects
from gymq.protocol.messages import Call, Generate, Generated, Message, Task, ToolCall
from gymq.resources import Verdict
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.waiting import until
from tests.workers.agents.crashes import Died, with_subject_of_session
from tests.workers.agents.script import Script, agent, rollout, said

N = 5
ROW = prompt("How much is 6 * 7?")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine changes no order."""
    monkeypatch.setattr(journal_module, "ORDER_PATIENCE_S", 60.0)


class World:
    """Passes requests on to a harness. Calls named in `turns` are answered in that order; after `dies_at`, none is."""

    def __init__(self, harness: AgentHarness, *, turns: list[str] | None = None, dies_at: int | None = None) -> None:
        self.asked: list[str] = []
        self.heard: list[str] = []
        self.is_dead = asyncio.Event()
        self._harness = harness
        self._turns = turns or []
        self._dies_at = dies_at
        self._answered = asyncio.Condition()

    async def call(self, subject: str, request: Call) -> Message:
        if self.is_dead.is_set():
            raise Died("the process was killed")
        name = _name(request)
        self.asked.append(name)
        async with self._answered:
            await self._answered.wait_for(lambda: self._is_turn(name))
        answer = await with_subject_of_session(self._harness, subject, request)
        if self._dies_at == len(self.heard):
            self.is_dead.set()
            raise Died("the process was killed")
        self.heard.append(name)
        async with self._answered:
            self._answered.notify_all()
        if isinstance(answer, Generated):
            return Generated(response=answer.response, policy_versions=[f"version of {name}"])
        return answer

    def _is_turn(self, name: str) -> bool:
        left = [turn for turn in self._turns if turn not in self.heard]
        return name not in left or left[0] == name

    async def send(self, subject: str, request: Call) -> None:
        await with_subject_of_session(self._harness, subject, request)


def _name(request: Call) -> str:
    """A model call's last message; of a tool call its arguments."""
    if isinstance(request, Generate):
        last = request.params["input"][-1]
        return str(last.get("content") or last.get("output"))
    return request.arguments if isinstance(request, ToolCall) else type(request).__name__


def _task(run: str) -> Task:
    return Task(
        run=run,
        task_index=0,
        rollout_index=0,
        num_rollouts=1,
        agent="agent",
        row=json.dumps(ROW).encode(),
        timeout_s=60.0,
    )


async def journal_of(bus: Bus, run: str) -> Journal:
    """What an agent process makes that has the task now."""
    journal = Journal(bus, _task(run), "worker")
    await journal.take_over()
    return journal


def in_world(world: World, of: gymq.Agent, recorder: Journal | None) -> Rollout:
    made = Rollout(
        world,
        rollout_id="run/0/0",
        row=json.dumps(ROW).encode(),
        options=of.options,
        deadline=asyncio.get_running_loop().time() + 300.0,
    )
    made.recorder = recorder
    return made


async def to_the_end(
    bus: Bus, run: str, harness: AgentHarness, *, turns: list[str], dies_at: int
) -> tuple[Rollout, Verdict, World, World]:
    """The rollout of a process that dies after so many replies and of the one that continues it."""
    first = World(harness, turns=turns, dies_at=dies_at)
    recorder = await journal_of(bus, run)
    with pytest.raises(Died):
        await run_to_verdict(harness.agent, in_world(first, harness.agent, recorder))
    await until(lambda: not (recorder._num_in_flight or recorder._writes))
    second = World(harness, turns=[turn for turn in turns if turn not in first.heard])
    continued = in_world(second, harness.agent, await journal_of(bus, run))
    verdict = await run_to_verdict(harness.agent, continued)
    return continued, verdict, first, second


def asks(made: Rollout, text: str, key: str | None = None) -> Awaitable[gymq.agent.Reply]:
    return made.ask({**made.params, "input": [responses.user_message(text)]}, key=key)


class Votes(gymq.Agent):
    """Asks `N` times at once; the reply that is given most often counts."""

    async def converse(self, rollout: Rollout, session: Session) -> None:
        replies = await asyncio.gather(*(asks(rollout, f"sample {n}", f"s{n}") for n in range(N)))
        texts = [responses.output_text(found.response) for found in replies]
        best = max(texts, key=texts.count)
        rollout.output += next(found.output for found in replies if responses.output_text(found.response) == best)


class AsTheyCome(gymq.Agent):
    """Records replies in the order in which they come, and asks once more about the first."""

    async def converse(self, rollout: Rollout, session: Session) -> None:
        for coming in asyncio.as_completed([asks(rollout, f"sample {n}") for n in range(N)]):
            rollout.output += (await coming).output
        await rollout.respond()


class Branches(gymq.Agent):
    """Branches of their own: each asks, counts in the session as its reply says, and asks again."""

    async def converse(self, rollout: Rollout, session: Session) -> None:
        async def branch(n: int) -> list[responses.OutputItem]:
            first = await asks(rollout, f"branch {n}")
            (call,) = first.function_calls
            output = await session.call(call)
            second = await asks(rollout, f"branch {n} has counted")
            return [call, output, *second.output]

        async def pair(n: int) -> tuple[list[responses.OutputItem], list[responses.OutputItem]]:
            return await asyncio.gather(branch(n), branch(n + 1))

        for found in await asyncio.gather(pair(0), pair(2)):
            for items in found:
                rollout.output += items


class Counter(gymq.Resources[gymq.Row, list[int]]):
    """Adds up what it was called with; the reward is the sum."""

    executed: list[int]

    async def open(self, row: gymq.Row) -> list[int]:
        self.executed = []
        return self.executed

    @gymq.tool
    async def count(self, state: list[int], n: int) -> int:
        state.append(n)
        return n

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, list[int]]) -> Verdict:
        state = request.state
        assert state is not None
        return Verdict(float(sum(state)))


class Grader(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> Verdict:
        return Verdict(float("42" in request.reply_text))


def model(params: dict[str, Any]) -> dict[str, Any]:
    """Every second sample is right; a branch asks it to count."""
    text = str(params["input"][-1].get("content"))
    usage = {"input_tokens": len(text), "output_tokens": 2, "total_tokens": len(text) + 2}
    if text.startswith("branch") and not text.endswith("counted"):
        n = int(text.split()[1])
        return reply(function_call("count", {"n": 10**n}, f"call {n}")) | {"usage": usage}
    said = reply("42" if text[-1:] in "024" else "41") | {"usage": usage}
    return said | {"id": f"resp_{text.replace(' ', '_')}"}


SAMPLES = [f"sample {n}" for n in range(N)]
TURNS = ["sample 3", "sample 1", "sample 4", "sample 0", "sample 2"]


async def uninterrupted(bus: Bus, run: str, harness: AgentHarness, turns: list[str]) -> tuple[Rollout, Verdict]:
    made = in_world(World(harness, turns=turns), harness.agent, await journal_of(bus, f"{run}-whole"))
    return made, await run_to_verdict(harness.agent, made)


def texts(made: Rollout) -> list[str]:
    return [responses.output_text({"output": [item]}) for item in made.output]


async def test_replies_to_questions_asked_at_once_are_recorded(bus: Bus, run: str) -> None:
    async with AgentHarness(Votes, Grader, model) as harness:
        made, verdict = await uninterrupted(bus, run, harness, TURNS)
    assert verdict.reward == 1.0
    assert made.response["usage"]["output_tokens"] == 2 * N
    assert len(made.timings) == N + 2  # seed and verdict


@pytest.mark.parametrize("dies_at", range(1, N + 2))
async def test_after_a_crash_only_what_was_not_heard_is_asked_again(bus: Bus, run: str, dies_at: int) -> None:
    async with AgentHarness(Votes, Grader, model) as harness:
        expected, verdict = await uninterrupted(bus, run, harness, TURNS)
        made, again, first, second = await to_the_end(bus, run, harness, turns=TURNS, dies_at=dies_at)
    asked_again = [name for name in second.asked if name in SAMPLES]
    assert sorted(asked_again) == sorted(set(SAMPLES) - set(first.heard))
    assert again.reward == verdict.reward
    assert texts(made) == texts(expected)
    assert made.response["usage"] == expected.response["usage"]
    assert made.policy_versions == expected.policy_versions


@pytest.mark.parametrize("dies_at", range(2, N + 3))
async def test_recorded_replies_come_in_the_order_in_which_they_came(bus: Bus, run: str, dies_at: int) -> None:
    async with AgentHarness(AsTheyCome, Grader, model) as harness:
        expected, _ = await uninterrupted(bus, run, harness, TURNS)
        made, _, first, _ = await to_the_end(bus, run, harness, turns=TURNS, dies_at=dies_at)
    heard = [f"version of {name}" for name in first.heard if name in SAMPLES]
    assert made.policy_versions[: len(heard)] == heard == expected.policy_versions[: len(heard)]
    assert texts(made) == texts(expected)
    assert made.response["usage"] == expected.response["usage"]
    assert made.response["id"] == expected.response["id"]


@pytest.mark.parametrize("dies_at", range(1, 14))
async def test_branches_with_tools_run_no_tool_twice(bus: Bus, run: str, dies_at: int) -> None:
    turns = ["branch 2", "branch 2 has counted", "branch 3", "branch 0", "branch 1", "branch 1 has counted"]
    async with AgentHarness(Branches, Counter, model) as harness:
        expected, verdict = await uninterrupted(bus, run, harness, turns)
        made, again, first, second = await to_the_end(bus, run, harness, turns=turns, dies_at=dies_at)
        assert isinstance(harness._author, Counter)
        executed = harness._author.executed
    assert verdict.reward == again.reward == 1111.0
    assert sorted(executed) == [1, 10, 100, 1000]
    heard = {name for name in first.heard if name.startswith("branch")}
    assert not heard & set(second.asked)
    assert [item.get("output") for item in made.output] == [item.get("output") for item in expected.output]
    assert made.response["usage"] == expected.response["usage"]


async def test_what_a_journal_has_written_it_does_not_keep(bus: Bus, run: str) -> None:
    recorder = await journal_of(bus, run)
    await asyncio.gather(*(recorder.effect(f"s{n}", False, replying(f"{n}")) for n in range(100)))
    assert not recorder._recorded
    assert not recorder._unwritten
    assert not recorder._writes


def replying(text: str, then: Callable[[], None] = lambda: None) -> Callable[[], Awaitable[Message]]:
    async def perform() -> Message:
        await asyncio.sleep(0)  # a reply takes time, so others have been asked for by then
        then()
        return Generated(response=reply(text))

    return perform


def never() -> Callable[[], Awaitable[Message]]:
    async def perform() -> Message:
        raise AssertionError("it was recorded")

    return perform


async def test_a_call_that_is_cancelled_while_it_is_written_leaves_a_usable_journal(bus: Bus, run: str) -> None:
    recorder = await journal_of(bus, run)
    store, storing, may_store = recorder._js.publish_with_retry, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any, **options: Any) -> Any:
        storing.set()
        await may_store.wait()
        return await store(*arguments, **options)

    recorder._js.publish_with_retry = slowly  # type: ignore[method-assign]
    cut = asyncio.create_task(recorder.effect("s0", False, replying("0")))
    await storing.wait()
    cut.cancel()
    following = asyncio.create_task(recorder.effect("s1", False, replying("1")))
    await asyncio.wait([cut])
    may_store.set()
    await following
    continued = await journal_of(bus, run)
    assert list(continued._recorded) == ["s0", "s1"]


async def test_a_loop_that_asks_something_else_leaves_the_rest_out(bus: Bus, run: str) -> None:
    recorder = await journal_of(bus, run)
    for key in ("a", "b", "c"):
        await recorder.effect(key, False, replying(key))
    second = await journal_of(bus, run)
    await second.effect("a", False, never())
    await second.effect("x", False, replying("x"))
    await second.effect("c", False, replying("another c"))
    third = await journal_of(bus, run)
    assert list(third._recorded) == ["a", "x", "c"]
    found = await third.effect("a", False, never()), await third.effect("x", False, never())
    assert [responses.output_text(message.response) for message in found] == ["a", "x"]  # type: ignore[attr-defined]


async def test_a_recorded_reply_waits_no_longer_than_it_must_for_those_before_it(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = await journal_of(bus, run)
    await asyncio.gather(*(recorder.effect(key, False, replying(key)) for key in ("a", "b", "c")))
    monkeypatch.setattr(journal_module, "ORDER_PATIENCE_S", 0.01)
    second = await journal_of(bus, run)
    late = await asyncio.gather(second.effect("c", False, never()), second.effect("b", False, never()))
    assert [responses.output_text(message.response) for message in late] == ["c", "b"]  # type: ignore[attr-defined]
    await second.effect("a", False, never())
    assert second.num_replayed == 3


async def test_a_cancelled_replay_lets_the_next_ones_continue(bus: Bus, run: str) -> None:
    recorder = await journal_of(bus, run)
    await asyncio.gather(*(recorder.effect(key, False, replying(key)) for key in ("a", "b", "c")))
    second = await journal_of(bus, run)
    waiting = {key: asyncio.create_task(second.effect(key, False, never())) for key in ("b", "c")}
    await asyncio.sleep(0)
    waiting["b"].cancel()
    await asyncio.wait([waiting["b"]])
    await second.effect("a", False, never())
    await waiting["c"]


async def test_the_same_question_asked_several_times_has_several_answers(bus: Bus, run: str) -> None:
    heard: list[str] = []

    async def sample(text: str) -> list[str]:
        script = Script(*(reply(f"{text} {n}") for n in range(3)))
        made = rollout(script, agent())
        made.recorder = await journal_of(bus, run)
        found = await asyncio.gather(*(made.ask(made.params | {"input": made.input}, key="again") for _ in range(3)))
        heard[:] = [type(request).__name__ for _, request in script.asked]
        return [responses.output_text(one.response) for one in found]

    first = await sample("first")
    assert (sorted(first), len(heard)) == (["first 0", "first 1", "first 2"], 3)
    assert await sample("second") == first
    assert heard == []


async def test_a_question_that_failed_is_the_same_question_when_it_is_asked_again(bus: Bus, run: str) -> None:
    failed = gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)
    first = rollout(Script(failed, said("heard")), agent())
    first.recorder = await journal_of(bus, run)
    with pytest.raises(gymq.RolloutError):
        await asks(first, "?", "k")
    await asks(first, "?", "k")
    second = rollout(Script(said("not heard")), agent())
    second.recorder = await journal_of(bus, run)
    assert responses.output_text((await asks(second, "?", "k")).response) == "heard"


class Stubborn:
    """A model that answers no question but those that fail."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.cancelled: list[str] = []

    async def call(self, subject: str, request: Call) -> Message:
        name = _name(request)
        if name == "sample 1":
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, "out of memory", retryable=False)
        self.waiting.append(name)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        raise AssertionError

    async def send(self, subject: str, request: Call) -> None:
        pass


class Grouped(gymq.Agent):
    async def run(self, rollout: Rollout) -> Verdict:
        async with asyncio.TaskGroup() as group:
            for n in range(N):
                group.create_task(asks(rollout, f"sample {n}"))  # type: ignore[arg-type]
        return Verdict(1.0)


class Gathered(gymq.Agent):
    async def run(self, rollout: Rollout) -> Verdict:
        await asyncio.gather(*(asks(rollout, f"sample {n}") for n in range(N)))
        return Verdict(1.0)


class Forgetful(gymq.Agent):
    """Leaves a call behind."""

    async def run(self, rollout: Rollout) -> Verdict:
        self.left = asyncio.ensure_future(asks(rollout, "sample 0"))
        await asyncio.sleep(0)
        return Verdict(1.0)


REFERENCES = {
    "model_server": {"type": "responses_api_models", "name": "model"},
    "resources_server": {"type": "resources_servers", "name": "resources"},
}


def against(stubborn: Stubborn, of: gymq.Agent) -> Rollout:
    return rollout(stubborn, of)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Grouped, Gathered])
async def test_one_call_that_fails_is_the_failure_and_cancels_the_others(kind: type[gymq.Agent]) -> None:
    stubborn, voter = Stubborn(), kind(REFERENCES)
    with pytest.raises(gymq.RolloutError, match="out of memory"):
        await run_to_verdict(voter, against(stubborn, voter))
    await until(lambda: sorted(stubborn.cancelled) == sorted(stubborn.waiting))


async def test_a_call_that_an_agent_left_behind_is_cancelled() -> None:
    stubborn, forgetful = Stubborn(), Forgetful(REFERENCES)
    made = against(stubborn, forgetful)
    assert (await run_to_verdict(forgetful, made)).reward == 1.0
    await asyncio.wait([forgetful.left])
    assert (forgetful.left.cancelled(), stubborn.cancelled) == (True, ["sample 0"])
    with pytest.raises(gymq.RolloutError, match="has ended"):
        await asks(made, "?")


async def test_a_journal_that_cannot_be_written_ends_the_attempt_in_a_group_too(bus: Bus, run: str) -> None:
    recorder = await journal_of(bus, run)
    grouped = Grouped(REFERENCES)
    made = rollout(Script(said()), grouped)  # type: ignore[arg-type]
    made.recorder = recorder
    await recorder.effect("before", False, replying("before"))
    await journal_of(bus, run)  # another process takes the rollout over
    with pytest.raises(BusError, match="was taken over"):
        await run_to_verdict(grouped, made)


async def test_two_replies_cannot_be_recorded_at_once() -> None:
    made = rollout(Script(said()), agent())
    with pytest.raises(gymq.RolloutError, match=r"respond\(\) was called while respond\(\) .* in flight") as refused:
        await asyncio.gather(made.respond(), made.respond())
    assert refused.value.failure_class is gymq.FailureClass.AGENT_FAILED
    assert not refused.value.retryable


async def test_nothing_is_recorded_between_a_question_and_its_reply() -> None:
    made = rollout(Script(said()), agent())
    asking = asyncio.create_task(made.respond())
    await asyncio.sleep(0)
    with pytest.raises(gymq.RolloutError, match=r"record\(\) was called while"):
        made.record({"type": "message", "role": "user", "content": "?"})
    await asking
    made.record({"type": "message", "role": "user", "content": "?"})


async def test_the_harness_refuses_what_a_worker_refuses() -> None:
    class Twice(gymq.Agent):
        async def converse(self, rollout: Rollout, session: Session) -> None:
            await asyncio.gather(rollout.respond(), rollout.respond())

    async with AgentHarness(Twice, Grader, model) as harness:
        with pytest.raises(gymq.RolloutError, match="in flight"):
            await harness.run(ROW)


async def test_the_harness_refuses_a_verdict_that_is_none() -> None:
    class Number(gymq.Agent):
        async def run(self, rollout: Rollout) -> Verdict:
            return 1.0  # type: ignore[return-value]

    async with AgentHarness(Number, Grader, model) as harness:
        with pytest.raises(gymq.RolloutError, match="no Verdict"):
            await harness.run(ROW)


async def test_a_session_that_is_lost_is_rebuilt_once_for_all_its_calls() -> None:
    from gymq.protocol.messages import FailureClass, Seeded, ToolResult

    other = subjects.SESSION.of("other", "session")
    seeds = iter([Seeded(session=subjects.SESSION.of("worker", "session"), replayable=True), Seeded(session=other)])
    asked: list[tuple[str, str]] = []

    class Lost(Script):
        async def call(self, subject: str, request: Call) -> Message:
            asked.append((subject.split(".")[2], _name(request)))
            await asyncio.sleep(0)
            if isinstance(request, ToolCall):
                if subject != other:
                    raise gymq.RolloutError(FailureClass.SESSION_LOST, "the worker is gone")
                return ToolResult(output=request.arguments)
            return next(seeds)

    made = rollout(Lost(), agent())
    calls = [function_call("count", {"n": n}, f"c{n}") for n in range(3)]
    async with made.session() as session:
        outputs = await asyncio.gather(*map(session.call, calls))
    assert [item["output"] for item in outputs] == [call["arguments"] for call in calls]
    assert [name for _, name in asked].count("Seed") == 2
