"""A training run connects as the role `trainer`, and does all that it does with what that role may."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gymq.trainer import TrainingRun
from tests.bus.weights.test_weights import Replicas, safetensors
from tests.support.engine import Body, say
from tests.support.environments import Grader
from tests.support.world import World, guarded_world

from .conftest import RoleServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleServer]:
    with running(tmp_path_factory.mktemp("trainer") / "auth") as made:
        yield made


@pytest.fixture
async def guarded(server: RoleServer) -> AsyncIterator[World]:
    """Workers of an operator."""
    async with guarded_world(server.url_of("operator")) as world:
        await world.add_resources("grader", Grader())
        await world.add_agent("asker", "grader")
        yield world


async def test_the_role_trainer_is_allowed_all_that_a_training_run_does(
    guarded: World, server: RoleServer, run: str
) -> None:
    replicas = Replicas(server.url_of("operator"), f"{run}-model")
    await replicas.start("a")
    never = asyncio.Event()
    num_asked = 0

    async def turn(body: Body) -> Body:
        nonlocal num_asked
        num_asked += 1
        if num_asked == 1:
            await never.wait()
        return say("done")

    guarded.engine.turn = turn
    training = await TrainingRun.connect(server.url_of("trainer"), run, model=f"{run}-model")
    try:
        rows = [guarded.row(_ng_task_index=0)]
        (group,) = [one async for one in training.run_rollouts(rows, num_samples=2, num_surplus=1)]
        assert group.is_complete
        pushed = await training.update_weights("v1", weights=safetensors(b"one"))
        assert pushed.confirmed == ["a"]
        (group,) = [one async for one in training.run_rollouts(rows, num_samples=2, num_surplus=1, max_staleness=0)]
        # A group that was cut gets no rollouts in place of stale ones.
        assert [failure.failure_class for failure in group.failures] == ["stale"] * 2 + ["cancelled"] * 3
    finally:
        await training.close()
        await replicas.kill("a")
    assert server.violations() == []
