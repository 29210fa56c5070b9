"""What callers of `/run` rely on, whatever the result."""

import asyncio

import aiohttp
import pytest

from gymq.bus import streams
from gymq.ext.http.memory import BodyMemory
from gymq.ext.nemo_gym import rollouts
from gymq.model import Model, ModelRequest
from gymq.protocol import subjects
from gymq.protocol.messages import Failure, VerifiedRollout
from gymq.runs.stored_runs import Runs
from gymq.testing import reply
from tests.support.engine import Body, say
from tests.support.environments import Grader
from tests.support.waiting import until, until_answer
from tests.support.world import HOST, Client, World, new_client


async def test_agents_behind_one_port_are_told_apart_by_the_row(client: Client, world: World) -> None:
    assert "total" not in await client.result(world.row(agent="asker"))
    assert (await client.result(world.row(agent="adder", start=4, expected=4)))["total"] == 4


async def test_an_unknown_agent_is_refused_with_the_names_of_those_that_are_there(client: Client, world: World) -> None:
    status, body = await client.run(world.row() | {"agent_ref": {"name": "absent"}})
    assert status == 422
    assert world.name("asker") in body["error"]["message"]


async def test_a_row_without_an_agent_is_refused_where_there_are_several(client: Client, world: World) -> None:
    row = world.row()
    del row["agent_ref"]
    assert (await client.run(row))[0] == 422


async def test_a_row_without_an_agent_goes_to_the_only_one(empty_world: World) -> None:
    await empty_world.add_model()
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    await empty_world.start_bridge()
    row = empty_world.row()
    del row["agent_ref"]
    async with new_client(empty_world) as client:
        assert (await client.result(row))["reward"] == 1.0


async def test_a_row_without_an_agent_goes_to_that_of_the_port(client: Client, world: World) -> None:
    row = world.row(start=1, expected=1)
    del row["agent_ref"]
    status, body = await client.post(f"{world.at('adder')}/run", row)
    assert (status, body["total"]) == (200, 1)


async def test_run_sets_no_cookie_and_reads_none(client: Client, world: World) -> None:
    cookies = {"Cookie": f"session=abc; gymq_session_{world.name('grader')}=nonsense"}
    async with client.session.post(f"{world.head}/run", json=world.row(), headers=cookies) as answer:
        assert answer.status == 200
        assert "Set-Cookie" not in answer.headers


async def test_identical_rows_are_rolled_out_each_for_itself(client: Client, world: World) -> None:
    results = await asyncio.gather(*(client.result(world.row(_ng_task_index=3)) for _ in range(64)))
    assert len({(result["gymq"]["run"], result["gymq"]["task_index"]) for result in results}) == 64
    assert len(world.engine.requests) == 64


async def test_who_hangs_up_cancels_the_rollout_the_engines_request_and_the_session(
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
    await until(lambda: not any(runner.local.sessions for runner in world.resources))
    assert world.bridge is not None
    assert world.bridge.rollouts.num_waiting == 0
    run = world.bridge.rollouts.run
    found = await until_answer(lambda: world.outcomes.find_outcome(run, 0, 0))
    assert found is not None
    _, outcome = found
    assert isinstance(outcome, Failure)
    assert outcome.failure_class == "cancelled"
    await until_answer(world.queued, lambda number: number == 0)


class Instant(Model):
    """Answers at once."""

    max_concurrency = 100_000

    async def respond(self, request: ModelRequest) -> Body:
        return reply("done")


@pytest.mark.nightly
async def test_five_thousand_posts_at_once_wait_for_eight_slots_and_all_are_answered(empty_world: World) -> None:
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


async def test_large_bodies_are_read_as_memory_allows(client: Client, world: World, monkeypatch) -> None:
    assert world.bridge is not None
    budget = world.bridge._context.bodies
    most = budget._free = 3 * 2**20
    rows = [world.row(blob="x" * (2 * 2**20), number=number) for number in range(6)]
    taken = []
    grant = budget._grant

    def watched(share: BodyMemory, num_bytes: int) -> None:
        grant(share, num_bytes)
        taken.append(most - budget._free)

    monkeypatch.setattr(budget, "_grant", watched)
    answers = await asyncio.gather(*(client.result(row) for row in rows))
    assert [answer["number"] for answer in answers] == list(range(6))
    assert 0 < max(taken) <= most + 2.1 * 2**20  # the first one may go beyond, by its own size
    assert budget._free == most


async def test_a_bridge_that_stops_while_its_clients_hang_up_leaves_nothing_running(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    assert world.bridge is not None
    rollouts = world.bridge.rollouts
    mark = rollouts._queue.mark_cancelled

    async def slow(run: str, task_index: int | None) -> None:
        await (mark(run) if task_index is None else asyncio.sleep(3600))

    monkeypatch.setattr(rollouts._queue, "mark_cancelled", slow)
    asking.cancel()
    await until(lambda: not rollouts.num_waiting)
    await rollouts.stop()
    await until(lambda: world.engine.num_dropped == 1)


async def test_a_bridge_that_was_killed_leaves_nothing_running(client: Client, world: World) -> None:
    """The next bridge of its name cancels what no client waits for."""
    world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    assert world.bridge is not None
    first = world.bridge
    first.rollouts._stopped = True  # it dies without a word
    asking.cancel()
    await until(lambda: not first.rollouts.num_waiting)
    await first._server.close()
    await world.start_bridge()
    await until(lambda: world.engine.num_dropped == 1)


async def test_rollouts_of_the_bridge_are_stored_like_all_others(client: Client, world: World) -> None:
    result = await client.result(world.row())
    labels = result["gymq"]
    found = await world.outcomes.find_outcome(labels["run"], labels["task_index"], labels["rollout_index"])
    assert found is not None
    assert isinstance(found[1], VerifiedRollout)


async def test_a_connection_that_is_refused_is_not_a_status(client: Client, world: World) -> None:
    """When the bridge is gone so are its ports."""
    assert world.bridge is not None
    await world.bridge.__aexit__(None, None, None)
    for url in (world.head, *(f"http://{HOST}:{place['port']}" for place in world.places)):
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.session.get(url)


async def test_the_record_of_a_run_is_not_read_for_each_row(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "OPEN_EVERY_S", 3600.0)
    read: list[str] = []
    subject = f"$JS.API.DIRECT.GET.{streams.RUNS}.{subjects.RUN.of(world.bridge.rollouts.run)}"
    await world.bus.listen(subject, lambda message: read.append(message.subject))
    await world.bus.flush()
    for number in range(4):
        await client.result(world.row(f"say {number}"))
    await world.bus.flush()
    assert read == [subject]


async def test_a_run_that_was_deleted_has_its_record_again_with_a_later_row(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "OPEN_EVERY_S", 0.0)
    run = world.bridge.rollouts.run
    await client.result(world.row())
    await streams.delete_run(world.js, run)
    assert not await Runs(world.bus).exists(run)
    await client.result(world.row())
    assert await Runs(world.bus).exists(run)
