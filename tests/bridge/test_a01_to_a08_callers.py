"""Acceptance A1 to A8: what callers of the head server and of `/run` rely on before there is any result."""

import asyncio
import json

import aiohttp
import pytest
import yaml
from omegaconf import OmegaConf

from gymq.bridge.directory import config_body
from gymq.bridge.memory import Share
from gymq.messages import Failure, Rollout
from gymq.model import Model, ModelRequest
from gymq.testing import reply

from .engine import Body, say
from .environments import Grader
from .waiting import until
from .world import Client, World, new_client

ODD_NAMES = {
    "with \"quotes\" and 'quotes'": 1,
    "umlaut ä, kanji 漢, emoji \U0001f600": "\U0001f600 ä",
    "colon: here": {"- dash": ["#", "a: b", "yes", "1e3", "~", "line\nbreak", ""]},
    "x" * 300: None,
}


def as_json_then_yaml(body: bytes) -> Body:
    """The reader of Gym's own client."""
    read = OmegaConf.to_container(OmegaConf.create(json.loads(body)), resolve=True)
    assert isinstance(read, dict)
    return read


def as_yaml_twice(body: bytes) -> Body:
    """The reader of the TRL script."""
    read: Body = yaml.safe_load(yaml.safe_load(body.decode()))
    return read


@pytest.mark.parametrize("read", [as_json_then_yaml, as_yaml_twice])
def test_a01_a_config_body_means_the_same_to_both_readers(read) -> None:
    body = config_body(ODD_NAMES)
    assert body.isascii()
    assert read(body) == ODD_NAMES


async def test_a01_the_head_server_answers_with_one_json_string(client: Client, world: World) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        body = await answer.read()
        assert answer.content_type == "application/json"
    assert isinstance(json.loads(body), str)
    assert as_json_then_yaml(body) == as_yaml_twice(body)


async def test_a02_every_instance_has_one_kind_and_one_implementation_with_its_address(
    client: Client, world: World
) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        tree = as_json_then_yaml(await answer.read())
    names = {world.name(name) for name in ("policy", "grader", "counter", "asker", "adder")}
    assert names <= tree.keys()
    for name in names:
        ((kind, implementations),) = tree[name].items()
        ((_, options),) = implementations.items()
        assert kind in ("responses_api_agents", "responses_api_models", "resources_servers")
        assert (await client.session.get(f"http://{options['host']}:{options['port']}/")).status == 200
    assert tree["head_server"] == {"host": "127.0.0.1", "port": int(world.head.rpartition(":")[2])}


async def test_a02_no_option_of_a_worker_is_told(client: Client, world: World) -> None:
    async with client.session.get(f"{world.head}/global_config_dict_yaml") as answer:
        assert "sk-a-key-for-tests" not in await answer.text()


async def test_a03_agents_behind_one_port_are_told_apart_by_the_row(client: Client, world: World) -> None:
    assert "total" not in await client.result(world.row(agent="asker"))
    assert (await client.result(world.row(agent="adder", start=4, expected=4)))["total"] == 4


async def test_a03_an_unknown_agent_is_refused_with_the_names_of_those_that_are_there(
    client: Client, world: World
) -> None:
    status, body = await client.run(world.row() | {"agent_ref": {"name": "nobody"}})
    assert status == 422
    assert world.name("asker") in body["error"]["message"]


async def test_a03_a_row_without_an_agent_is_refused_where_there_are_several(client: Client, world: World) -> None:
    row = world.row()
    del row["agent_ref"]
    assert (await client.run(row))[0] == 422


async def test_a03_a_row_without_an_agent_goes_to_the_only_one(empty_world: World) -> None:
    await empty_world.add_model()
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    await empty_world.start_bridge()
    row = empty_world.row()
    del row["agent_ref"]
    async with new_client(empty_world) as client:
        assert (await client.result(row))["reward"] == 1.0


async def test_a03_a_row_without_an_agent_goes_to_that_of_the_port(client: Client, world: World) -> None:
    row = world.row(start=1, expected=1)
    del row["agent_ref"]
    status, body = await client.post(f"{world.at('adder')}/run", row)
    assert (status, body["total"]) == (200, 1)


async def test_a04_run_sets_no_cookie_and_reads_none(client: Client, world: World) -> None:
    cookies = {"Cookie": f"session=abc; gymq_session_{world.name('grader')}=nonsense"}
    async with client.session.post(f"{world.head}/run", json=world.row(), headers=cookies) as answer:
        assert answer.status == 200
        assert "Set-Cookie" not in answer.headers


async def test_a05_identical_rows_are_rolled_out_each_for_itself(client: Client, world: World) -> None:
    results = await asyncio.gather(*(client.result(world.row(_ng_task_index=3)) for _ in range(64)))
    assert len({(result["gymq"]["run"], result["gymq"]["task_index"]) for result in results}) == 64
    assert len(world.engine.requests) == 64


async def test_a06_who_hangs_up_cancels_the_rollout_the_engines_request_and_the_session(
    client: Client, world: World
) -> None:
    called = asyncio.Event()

    async def never(body: Body) -> Body:
        called.set()
        await asyncio.sleep(3600)
        return say("too late")

    world.engine.turn = never
    asking = asyncio.create_task(client.run(world.row(agent="adder")))
    await called.wait()
    assert await world.sessions() == 1
    asking.cancel()
    await until(lambda: world.engine.num_dropped == 1)
    await until(lambda: not any(runner.worker.sessions for runner in world.resources))
    assert world.bridge is not None
    assert world.bridge.rollouts.num_waiting == 0
    while (found := await world.outcomes.find_outcome(world.bridge.rollouts.run, 0, 0)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert isinstance(found[1], Failure)
    assert found[1].failure_class == "cancelled"
    while await world.queued():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


KEY = {"Idempotency-Key": "the-same-key"}


async def raw_run(client: Client, row: Body, headers: dict[str, str]) -> bytes:
    url = f"{client.world.head}/run"
    async with client.session.post(url, json=row, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def test_a07_a_key_that_is_repeated_meanwhile_joins_the_rollout(client: Client, world: World) -> None:
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


async def test_a07_a_key_that_is_repeated_afterwards_gets_the_same_bytes(client: Client, world: World) -> None:
    first = await raw_run(client, world.row(), KEY)
    assert await raw_run(client, world.row(), KEY) == first
    assert len(world.engine.requests) == 1


async def test_a07_a_key_holds_when_its_caller_hangs_up_and_the_bridge_is_started_again(
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
    for place in world.places:
        assert place.port
    await world.start_bridge()
    again = asyncio.create_task(raw_run(client, world.row(), KEY))
    await until(lambda: world.bridge is not None and world.bridge.rollouts.num_waiting)
    hold.set()
    first = await again
    assert await raw_run(client, world.row(), KEY) == first
    assert len(world.engine.requests) == 1


async def test_a07_the_rows_own_rollout_id_and_attempt_are_a_key(client: Client, world: World) -> None:
    def row(attempt: int, place: int) -> Body:
        return world.row(_ng_rollout_id="3-1", _ng_attempt_index=attempt, _rowidx=place)

    first = await raw_run(client, row(0, 7), {})
    assert json.loads(await raw_run(client, row(0, 8), {}))["gymq"] == json.loads(first)["gymq"]
    assert json.loads(await raw_run(client, row(1, 7), {}))["gymq"] != json.loads(first)["gymq"]
    assert len(world.engine.requests) == 2


async def test_a07_a_key_cannot_be_used_for_another_row(client: Client, world: World) -> None:
    await raw_run(client, world.row("one"), KEY)
    status, body = await client.run(world.row("another"), **KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")


async def test_a07_a_key_whose_rollout_failed_for_want_of_luck_is_tried_again(client: Client, world: World) -> None:
    world.engine.turn = lambda body: (500, {"error": "out of order"})
    assert (await client.run(world.row(), **KEY))[0] == 500
    world.engine.turn = lambda body: say("done")
    assert (await client.run(world.row(), **KEY))[0] == 200


async def test_a07_a_row_with_ids_that_names_no_agent_is_rolled_out_by_each_that_gets_it(
    client: Client, world: World
) -> None:
    row = world.row(_ng_rollout_id="3-1", _ng_attempt_index=0, start=1, expected=1)
    del row["agent_ref"]
    for name in ("asker", "adder", "asker"):
        assert (await client.post(f"{world.at(name)}/run", row))[0] == 200
    assert len(world.engine.requests) == 2


async def test_a07_a_key_cannot_be_used_for_another_agent(client: Client, world: World) -> None:
    row = world.row(start=1, expected=1)
    del row["agent_ref"]
    assert (await client.post(f"{world.at('asker')}/run", row, headers=KEY))[0] == 200
    status, body = await client.post(f"{world.at('adder')}/run", row, headers=KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")


async def ask_and_start_again(client: Client, world: World, row: Body) -> asyncio.Event:
    """Have a rollout with a key in work and a new bridge that nobody has asked for it; it fails at the event."""
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


async def test_a07_a_key_that_an_earlier_bridge_left_in_the_queue_cannot_be_used_for_another_row(
    client: Client, world: World
) -> None:
    hold = await ask_and_start_again(client, world, world.row("one"))
    status, body = await client.run(world.row("another"), **KEY)
    assert (status, body["error"]["class"]) == (422, "key_reused")
    hold.set()


async def test_a07_a_key_whose_rollout_failed_while_nobody_waited_is_tried_again(client: Client, world: World) -> None:
    hold = await ask_and_start_again(client, world, world.row())
    hold.set()
    while await world.queued():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    world.engine.turn = lambda body: say("done")
    assert (await client.run(world.row(), **KEY))[0] == 200


class Instant(Model):
    """Answers at once."""

    max_concurrency = 100_000

    async def respond(self, request: ModelRequest) -> Body:
        return reply("done")


@pytest.mark.timeout(600)
async def test_a08_five_thousand_posts_at_once_wait_for_eight_slots_and_all_are_answered(empty_world: World) -> None:
    world = empty_world
    await world.add_model(model=Instant())
    await world.add_resources("grader", Grader())
    await world.add_agent("asker", "grader", max_concurrency=8, skip_verification=True)
    await world.start_bridge(on_untrainable="allow")
    async with new_client(world) as client:
        rows = [world.row(str(number), number=number) for number in range(5000)]
        answers = await asyncio.gather(*(client.run(row) for row in rows))
    assert {status for status, _ in answers} == {200}
    assert [body["number"] for _, body in answers] == list(range(5000))


async def test_a08_large_bodies_are_read_as_memory_allows(client: Client, world: World, monkeypatch) -> None:
    assert world.bridge is not None
    budget = world.bridge._context.bodies
    most = budget._free = 3 * 2**20
    rows = [world.row(blob="x" * (2 * 2**20), number=number) for number in range(6)]
    taken = []
    grant = budget._grant

    def watched(share: Share, num_bytes: int) -> None:
        grant(share, num_bytes)
        taken.append(most - budget._free)

    monkeypatch.setattr(budget, "_grant", watched)
    answers = await asyncio.gather(*(client.result(row) for row in rows))
    assert [answer["number"] for answer in answers] == list(range(6))
    assert 0 < max(taken) <= most + 2.1 * 2**20  # the first one may go beyond, by its own size
    assert budget._free == most


async def test_a_bridge_that_was_killed_leaves_nothing_running(client: Client, world: World) -> None:
    """The next bridge of its name cancels what nobody waits for any more."""
    world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    assert world.bridge is not None
    first = world.bridge
    first.rollouts._stopped = True  # it dies without a word
    asking.cancel()
    await until(lambda: not first.rollouts.num_waiting)
    assert first._runner is not None
    first._listener.close()
    await first._runner.cleanup()
    await world.start_bridge()
    await until(lambda: world.engine.num_dropped == 1)


async def test_rollouts_of_the_bridge_are_stored_like_all_others(client: Client, world: World) -> None:
    result = await client.result(world.row())
    labels = result["gymq"]
    found = await world.outcomes.find_outcome(labels["run"], labels["task_index"], labels["rollout_index"])
    assert found is not None
    assert isinstance(found[1], Rollout)


async def test_a_connection_that_is_refused_is_not_a_status(client: Client, world: World) -> None:
    """When the bridge is gone so are its ports."""
    assert world.bridge is not None
    await world.bridge.__aexit__(None, None, None)
    for url in (world.head, *(place.url for place in world.places)):
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.session.get(url)
