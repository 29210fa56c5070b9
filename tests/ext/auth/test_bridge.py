"""The bridge connects as the role `bridge`, and does all that it does with what that role may."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gymq.testing import reply
from tests.support.engine import say
from tests.support.environments import Counter
from tests.support.waiting import until
from tests.support.world import World, guarded_world, new_client

from .conftest import RoleServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("bridge") / "auth") as server:
        yield server


@pytest.fixture
async def guarded(server: RoleServer) -> AsyncIterator[World]:
    """Workers of an operator, and a bridge that is no more than a bridge."""
    async with guarded_world(server.url_of("operator")) as world:
        await world.add_resources("counter", Counter())
        await world.add_agent("adder", "counter")
        await world.start_bridge(url=server.url_of("bridge"))
        yield world


async def test_the_role_bridge_is_allowed_all_that_a_bridge_does(guarded: World, server: RoleServer) -> None:
    async with new_client(guarded) as client:
        row = guarded.row(agent="adder", start=1, expected=1)
        assert (await client.result(row))["reward"] == 1.0
        assert (await client.result(row, **{"Idempotency-Key": "k"}))["reward"] == 1.0
        assert (await client.post("/v1/responses", {"input": "hi"}))[0] == 200
        prefix = f"/resources/{guarded.name('counter')}"
        async with client.session.post(guarded.head + prefix + "/seed_session", json=row) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        headers = {"Cookie": cookie}
        assert (await client.post(f"{prefix}/add", {"amount": 1}, headers=headers))[1] == {"total": 2}
        verify = row | {"response": reply("x")}
        assert (await client.post(f"{prefix}/verify", verify, headers=headers))[1]["total"] == 2
        async with client.session.get(f"{guarded.head}/server_instances") as answer:
            assert {entry["status"] for entry in await answer.json()} == {"running"}
        assert guarded.bridge is not None
        run = guarded.bridge.rollouts.run
        for path in ("runs", f"runs/{run}", f"runs/{run}/rollouts", f"rollouts/{run}/0/0", f"rollouts/{run}/0/0/live"):
            async with client.session.get(f"{guarded.head}/ui/api/{path}") as answer:
                assert answer.status == 200, await answer.text()
        guarded.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
        asking = asyncio.create_task(client.run(row))
        await until(lambda: len(guarded.engine.requests) == 4)
        asking.cancel()
        await until(lambda: guarded.engine.num_dropped == 1)
    assert server.violations() == []
