"""A key makes a repeated `/run` one rollout."""

import asyncio
import json

from gymq.protocol import subjects
from tests.support.engine import Body, say
from tests.support.waiting import until, until_answer
from tests.support.world import Client, World

KEY = {"Idempotency-Key": "the-same-key"}


async def raw_run(client: Client, row: Body, headers: dict[str, str]) -> bytes:
    url = f"{client.world.head}/run"
    async with client.session.post(url, json=row, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def test_a_key_that_is_repeated_meanwhile_joins_the_rollout(client: Client, world: World) -> None:
    hold = asyncio.Event()

    async def wait(body: Body) -> Body:
        await hold.wait()
        return say("done")

    world.engine.turn = wait
    asking = [asyncio.create_task(raw_run(client, world.row(), KEY)) for _ in range(3)]
    await until(lambda: world.engine.requests)
    hold.set()
    assert len(set(await asyncio.gather(*asking))) == 1
    assert len(world.engine.requests) == 1


async def test_a_key_that_is_repeated_afterwards_gets_the_same_bytes(client: Client, world: World) -> None:
    first = await raw_run(client, world.row(), KEY)
    assert await raw_run(client, world.row(), KEY) == first
    assert len(world.engine.requests) == 1


async def test_a_key_is_that_of_a_row_whose_tools_the_environment_filled_in(client: Client, world: World) -> None:
    row = world.row(agent="adder")
    assert await raw_run(client, row, KEY) == await raw_run(client, row, KEY)
    assert len(world.engine.requests) == 1


async def test_a_key_holds_when_its_caller_hangs_up_and_the_bridge_is_started_again(
    client: Client, world: World
) -> None:
    hold = asyncio.Event()

    async def wait(body: Body) -> Body:
        await hold.wait()
        return say("done")

    world.engine.turn = wait
    asking = asyncio.create_task(raw_run(client, world.row(), KEY))
    await until(lambda: world.engine.requests)
    asking.cancel()
    assert world.bridge is not None
    await world.bridge.__aexit__(None, None, None)
    await world.start_bridge()
    again = asyncio.create_task(raw_run(client, world.row(), KEY))
    await until(lambda: world.bridge is not None and world.bridge.rollouts.num_waiting)
    hold.set()
    first = await again
    assert await raw_run(client, world.row(), KEY) == first
    assert len(world.engine.requests) == 1


async def test_the_rows_own_rollout_id_and_attempt_are_a_key(client: Client, world: World) -> None:
    def row(attempt: int, place: int) -> Body:
        return world.row(_ng_rollout_id="3-1", _ng_attempt_index=attempt, _rowidx=place)

    first = await raw_run(client, row(0, 7), {})
    assert json.loads(await raw_run(client, row(0, 8), {}))["gymq"] == json.loads(first)["gymq"]
    assert json.loads(await raw_run(client, row(1, 7), {}))["gymq"] != json.loads(first)["gymq"]
    assert len(world.engine.requests) == 2


async def test_a_key_cannot_be_used_for_another_row(client: Client, world: World) -> None:
    await raw_run(client, world.row("one"), KEY)
    status, body = await client.run(world.row("another"), **KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")


async def test_a_key_whose_rollout_failed_for_want_of_luck_is_tried_again(client: Client, world: World) -> None:
    world.engine.turn = lambda body: (500, {"error": "out of order"})
    assert (await client.run(world.row(), **KEY))[0] == 500
    world.engine.turn = lambda body: say("done")
    assert (await client.run(world.row(), **KEY))[0] == 200


async def test_a_key_whose_rollout_failed_for_a_wrong_configuration_is_tried_again(
    client: Client, world: World
) -> None:
    world.engine.turn = lambda body: (401, {"error": "wrong key"})
    assert (await client.run(world.row(), **KEY))[0] == 422
    world.engine.turn = lambda body: say("done")
    assert (await client.run(world.row(), **KEY))[0] == 200


async def test_a_key_whose_stored_result_cannot_be_read_is_rolled_out_again(client: Client, world: World) -> None:
    found = json.loads(await raw_run(client, world.row(), KEY))["gymq"]
    at = subjects.ROLLOUT.of(found["run"], found["task_index"], found["rollout_index"])
    await world.js.store(at, b"\xff nonsense")
    assert json.loads(await raw_run(client, world.row(), KEY))["gymq"]["task_index"] == found["task_index"]
    assert len(world.engine.requests) == 2


async def test_a_row_with_ids_that_names_no_agent_is_rolled_out_by_each_that_gets_it(
    client: Client, world: World
) -> None:
    row = world.row(_ng_rollout_id="3-1", _ng_attempt_index=0, start=1, expected=1)
    del row["agent_ref"]
    for name in ("asker", "adder", "asker"):
        assert (await client.post(f"{world.at(name)}/run", row))[0] == 200
    assert len(world.engine.requests) == 2


async def test_a_key_cannot_be_used_for_another_agent(client: Client, world: World) -> None:
    row = world.row(start=1, expected=1)
    del row["agent_ref"]
    assert (await client.post(f"{world.at('asker')}/run", row, headers=KEY))[0] == 200
    status, body = await client.post(f"{world.at('adder')}/run", row, headers=KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")


async def ask_and_start_again(client: Client, world: World, row: Body) -> asyncio.Event:
    """Start a rollout with a key, then a new bridge that has no request for it; it fails at the event."""
    hold = asyncio.Event()

    async def fail(body: Body) -> tuple[int, Body]:
        await hold.wait()
        return 500, {"error": "out of order"}

    world.engine.turn = fail
    asking = asyncio.create_task(raw_run(client, row, KEY))
    await until(lambda: world.engine.requests)
    asking.cancel()
    assert world.bridge is not None
    await world.bridge.__aexit__(None, None, None)
    await world.start_bridge()
    return hold


async def test_a_key_that_an_earlier_bridge_left_in_the_queue_cannot_be_used_for_another_row(
    client: Client, world: World
) -> None:
    hold = await ask_and_start_again(client, world, world.row("one"))
    status, body = await client.run(world.row("another"), **KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")
    hold.set()


async def test_a_key_whose_rollout_failed_while_nobody_waited_is_tried_again(client: Client, world: World) -> None:
    hold = await ask_and_start_again(client, world, world.row())
    hold.set()
    await until_answer(world.queued, lambda number: number == 0)
    world.engine.turn = lambda body: say("done")
    assert (await client.run(world.row(), **KEY))[0] == 200
