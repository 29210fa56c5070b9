"""A world of workers for each test, and a training run on it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.trainer import TrainingRun
from tests.support.engine import say
from tests.support.environments import Counter, Grader
from tests.support.world import World, grading_world

Row = dict[str, Any]
Examples = Callable[..., list[Row]]


class Alternating(Grader):
    """Gives the rewards of a row's `rewards` in turn; 0 and 1 for a row with `varies`; otherwise `reward`, or 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_verified = 0

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        fields = request.row.model_extra or {}
        self.num_verified += 1
        rewards = fields.get("rewards") or ([0.0, 1.0] if fields.get("varies") else [fields.get("reward", 1.0)])
        return gymq.Verdict(rewards[self.num_verified % len(rewards)])


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """A model in front of a scripted engine, a verifier, an agent."""
    async with grading_world(shared_url, bus) as made:
        yield made


@pytest.fixture
async def training(world: World, run: str) -> AsyncIterator[TrainingRun]:
    made = await TrainingRun.connect(world.url, run, model=world.name("policy"))
    yield made
    await made.close()


@pytest.fixture
def examples(world: World) -> Examples:
    """So many examples, `say N` with task index N; `members` go into each."""

    def make(count: int, *, first: int = 0, **members: Any) -> list[Row]:
        return [world.row(f"say {at}", _ng_task_index=at, **members) for at in range(first, first + count)]

    return make


@pytest.fixture
async def alternating(world: World) -> Alternating:
    verifier = Alternating()
    await world.add_resources("alternating", verifier)
    await world.add_agent("player", "alternating", max_concurrency=1)
    return verifier


@pytest.fixture
async def five_calls(world: World) -> Row:
    """A row whose rollout has five calls, none of which continues another: a sequence for each."""
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    world.engine.drop_reasoning = True  # the template renders earlier turns again
    world.engine.turn = lambda body: say("done") if len(body["messages"]) > 8 else say(None, ("add", {"amount": 1}))
    return world.row(agent="counting", expected=4, _ng_task_index=0)
