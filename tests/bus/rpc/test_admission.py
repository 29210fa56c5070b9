"""Rollouts are held back while the KV caches of a model are full: the oldest take turns, and all of them end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

import gymq
from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.rpc import admission
from gymq.bus.rpc.admission import FILL, FIRST_TOKENS, KvBudget
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.bus.rpc.serving import Server
from gymq.execution import model_runner
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.model_runner import ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.messages import Generate, Priority, Task
from gymq.testing import prompt, reply
from tests.support.waiting import DEADLINE_S, until

Connect = Callable[[str], Awaitable[Bus]]


def budget_of(limit: int | None, **tokens: int) -> KvBudget:
    """A budget with rollouts that have answered, the oldest first."""
    budget = KvBudget()
    budget.limit, budget.mean_tokens = limit, 1.0
    for rollout, count in tokens.items():
        budget.start(rollout)
        budget.answered(rollout, count)
    return budget


async def turn(budget: KvBudget, rollout: str) -> asyncio.Task[None]:
    """Begin a turn, and return when all that can happen without waiting has happened."""
    task = asyncio.create_task(budget.turn(rollout))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_without_a_limit_any_number_takes_turns() -> None:
    budget = budget_of(None, a=10**9, b=10**9)
    assert budget.room() is None
    for rollout in "ab":
        await budget.turn(rollout)


async def test_the_oldest_that_fit_take_turns_and_the_others_resume_when_these_end() -> None:
    budget = budget_of(1000, a=400, b=500, c=300, d=50)
    assert [(await turn(budget, rollout)).done() for rollout in "ab"] == [True, True]
    c, d = await turn(budget, "c"), await turn(budget, "d")
    assert (c.done(), d.done(), budget.num_paused) == (False, False, 2)  # `d` would fit, but is younger
    budget.end("a")
    await asyncio.gather(c, d)
    assert budget.num_paused == 0


async def test_the_oldest_never_waits() -> None:
    budget = budget_of(1000, a=5000, b=10)
    await budget.turn("a")
    b = await turn(budget, "b")
    assert not b.done()
    budget.end("a")
    await b


async def test_a_rollout_that_grows_pauses_the_youngest_at_the_end_of_its_turn() -> None:
    budget = budget_of(1000, a=300, b=300, c=300)
    await budget.turn("c")
    budget.answered("a", 500)
    c = await turn(budget, "c")
    assert not c.done()
    await budget.turn("b")
    budget.answered("a", 300)  # its agent shortened the conversation
    await c


async def test_calls_of_one_rollout_wait_and_resume_together() -> None:
    budget = budget_of(1000, a=900, b=900)
    calls = [await turn(budget, "b") for _ in range(3)]
    assert budget.num_paused == 1
    budget.end("a")
    await asyncio.gather(*calls)


async def test_a_turn_that_is_cancelled_waits_no_more() -> None:
    budget = budget_of(1000, a=900, b=900)
    waiting = await turn(budget, "b")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.num_paused == 0
    budget.end("b")
    budget.end("a")
    assert budget.room() == max(1, int(1000 / budget.mean_tokens))


async def test_an_urgent_rollout_takes_turns_although_it_is_the_youngest() -> None:
    budget = budget_of(1000, a=400, b=500)
    budget.start("urgent", Priority.URGENT)
    budget.answered("urgent", 300)
    await budget.turn("urgent")
    assert [(await turn(budget, rollout)).done() for rollout in "ab"] == [True, False]


async def test_the_oldest_of_each_class_never_waits() -> None:
    budget = budget_of(1000, a=100, b=100)
    for rollout, priority in (("u", Priority.URGENT), ("v", Priority.URGENT), ("w", Priority.BACKGROUND)):
        budget.start(rollout, priority)
        budget.answered(rollout, 2000)
    turns = {rollout: await turn(budget, rollout) for rollout in "uvabw"}
    assert [rollout for rollout, task in turns.items() if not task.done()] == ["v", "b"]
    budget.end("u")
    await turns["v"]
    assert not turns["b"].done()
    budget.end("v")
    budget.end("w")
    await turns["b"]


async def test_a_call_outside_of_a_rollout_that_was_started_does_not_wait() -> None:
    await budget_of(1000, a=900, b=900).turn("of the bridge")


def test_a_young_rollout_needs_as_much_as_others_on_average() -> None:
    budget = budget_of(10_000, a=1_000)
    budget.mean_tokens = 1_000.0
    budget.start("b")
    budget.answered("b", 10)
    assert budget.mean_tokens < 1_000
    assert budget.room() == int((10_000 - 1_000 - budget.mean_tokens) / budget.mean_tokens)


def test_as_many_rollouts_start_as_fit_on_average() -> None:
    budget = KvBudget()
    budget.limit = int(10.5 * FIRST_TOKENS)
    assert budget.room() == 10
    for number in range(7):
        budget.start(str(number))
    assert budget.room() == 3
    budget.limit = 1
    assert budget.room() == 0
    for number in range(7):
        budget.end(str(number))
    assert budget.room() == 1  # one that does not fit runs alone


async def test_none_starts_while_one_is_paused() -> None:
    budget = budget_of(10_000, a=9_990, b=200)
    waiting = await turn(budget, "b")
    budget.answered("a", 9_000)
    await waiting
    assert budget.room() == int((10_000 - 9_200) / budget.mean_tokens)
    budget.answered("a", 9_990)
    await turn(budget, "b")
    assert budget.room() == 0


async def test_each_process_gets_its_part_of_what_the_replicas_hold() -> None:
    budget = KvBudget()
    assert budget.limit is None
    budget.share(100_000, 4)
    assert budget.limit == int(FILL * 25_000)
    budget.start("a")
    budget.start("b")
    budget.answered("a", 30_000)
    waiting = await turn(budget, "b")
    assert not waiting.done()
    budget.share(100_000, 1)  # the others have gone
    await waiting
    budget.share(0, 1)
    assert budget.limit is None


@pytest.mark.parametrize("seed", range(20))
async def test_all_rollouts_end_whatever_they_need(seed: int) -> None:
    draw = random.Random(seed)
    budget = KvBudget()
    budget.limit = 1000
    in_use: dict[str, int] = {}
    ended: list[str] = []

    async def roll_out(rollout: str, num_turns: int) -> None:
        tokens = 0
        budget.start(rollout)
        for _ in range(num_turns):
            await budget.turn(rollout)
            tokens += draw.randint(1, 200)
            in_use[rollout] = tokens
            await asyncio.sleep(0)
            budget.answered(rollout, tokens)
        budget.end(rollout)
        del in_use[rollout]
        ended.append(rollout)

    async with asyncio.timeout(300):
        await asyncio.gather(*(roll_out(str(number), draw.randint(1, 20)) for number in range(40)))
    assert sorted(ended, key=int) == [str(number) for number in range(40)]
    assert (budget.num_paused, in_use) == (0, {})


class Engine(gymq.Model):
    """States what its cache holds; each conversation has as many tokens as its rollout is named."""

    num_tokens = 1000

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        answer = reply("x")
        return answer | {"usage": {"input_tokens": int(request.session), "output_tokens": 0}}

    def load(self) -> gymq.ModelLoad:
        return gymq.ModelLoad(running=0, waiting=0, kv_cache_tokens=self.num_tokens)


async def test_a_call_waits_for_the_caches_that_replicas_state(
    bus: Bus, other_bus: Bus, connect: Connect, shared_url: str, run: str
) -> None:
    routes = Routes(bus)
    await routes.start()
    calls, budget = RoutedCalls(Calls(bus), routes), routes.admission[run]
    server = Server(other_bus, f"{run}-w")
    await server.start()
    runner = ModelRunner(Engine(name=run))
    await runner.serve(server)
    await other_bus.flush()
    await until(lambda: budget.limit == FILL * 1000)

    async def ask(rollout: str, tokens: int) -> None:
        params = {"input": [{"role": "user", "content": "x"}]}
        request = Generate(rollout=rollout, timeout_s=60.0, params=params, session=str(tokens))
        await calls.call(subjects.MODEL.of(run), request)

    for rollout in ("r/0/0", "r/0/1"):
        budget.start(rollout)
    async with asyncio.timeout(DEADLINE_S):
        await ask("r/0/0", 800)
        budget.answered("r/0/1", 700)
        younger = asyncio.create_task(ask("r/0/1", 700))
        await until(lambda: budget.num_paused == 1)
        await ask("r/0/0", 850)
        assert not younger.done()
        budget.end("r/0/0")
        await younger
        assert budget.limit == FILL * 1000
        params = {"input": [{"role": "user", "content": "x"}]}
        request = Generate(rollout="other/0/0", timeout_s=60.0, params=params, session="10")
        await Calls(await connect(shared_url)).call(subjects.MODEL.of(run), request)
    await until(lambda: budget.limit == FILL * 500)  # there are two processes that ask
    await runner.stop()


async def test_whatever_happens_the_oldest_that_fit_take_turns() -> None:
    random_ = random.Random(7)
    budget = budget_of(1000)
    needed: dict[str, float] = {}  # of each rollout, the oldest first
    for step in range(400):
        kind = random_.choice(("start", "answered", "answered", "answered", "end"))
        if kind == "start" or not needed:
            needed[str(step)] = budget.mean_tokens
            budget.start(str(step))
        elif kind == "answered":
            rollout, tokens = random_.choice(list(needed)), random_.randint(1, 200)
            budget.answered(rollout, tokens)
            needed[rollout] = max(tokens, budget.mean_tokens)
        else:
            rollout = random_.choice(list(needed))
            del needed[rollout]
            budget.end(rollout)
        budget.limit = limit = random_.choice((300, 1000))
        total = 0.0
        for number, (rollout, its_tokens) in enumerate(needed.items()):
            total += its_tokens
            begun = await turn(budget, rollout)
            assert begun.done() == (number == 0 or total <= limit), f"step {step}"
            begun.cancel()
            await asyncio.wait([begun])


class Busy(gymq.Model):
    """Answers one call at a time, and the first of them only when the test says so."""

    max_concurrency = 1

    def __init__(self, name: str, go: asyncio.Event) -> None:
        super().__init__(name=name)
        self.go = go

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        await self.go.wait()
        return reply("yes")


class Asking(gymq.Agent):
    def journals(self, rollout: gymq.Rollout) -> bool:
        return False

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        await rollout.respond()


class Passing(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> float:
        return 1.0


async def test_an_agent_leaves_tasks_in_the_queue_while_calls_wait_for_its_model(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "FEWEST_IN_FLIGHT", 4)
    monkeypatch.setattr(model_runner, "LOOK_EVERY_S", 0.01)
    go, processes = asyncio.Event(), KillableProcesses()
    server, routes = Server(bus, "worker"), Routes(bus)
    await server.start()
    await routes.start()
    await ResourcesRunner(Passing(name=run), processes).serve(server)
    model = ModelRunner(Busy(run, go))
    await model.serve(server)
    agent = Asking(
        {
            "model_server": {"type": "responses_api_models", "name": run},
            "resources_server": {"type": "resources_servers", "name": run},
        },
        name=run,
    )
    await streams.ensure(bus.js, [run])
    calls = RoutedCalls(Calls(bus), routes)
    runner = AgentRunner(bus, calls, agent, worker="worker", admission=routes.admission)
    await runner.start()
    queue, row = QueueClient(bus), msgspec.json.encode(prompt("?"))

    async def submit(numbers: range) -> None:
        for number in numbers:
            task = Task(run=run, task_index=number, rollout_index=0, agent=run, row=row, timeout_s=60.0)
            await queue.submit(task)

    try:
        await submit(range(3))
        await until(lambda: routes.admission[run].most_in_flight == 4)
        # What was asked for before calls waited may still be delivered, for a second.
        await until(lambda: all(lane.pull.outstanding <= 1 for lane in runner._queue._lanes.values()))
        await submit(range(3, 12))
        await until(lambda: runner.stats()["load"] == 4)
        await asyncio.sleep(0.2)
        assert runner.stats()["load"] == 4
        assert set(runner.held_back()) <= {f"{run} has enough to do"}
        go.set()
        await until(lambda: runner.num_done == 12)
    finally:
        await runner.drain(DEADLINE_S)
        await model.stop()
        await server.drain(DEADLINE_S)
        processes.close()
