"""A client that was written for NeMo Gym, pointed at a bridge: nothing but the address is another."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.engine import Body, say
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_S, until
from tests.support.world import World

from .gym_client import GymClient, collect, play

TOOL = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    "strict": False,
}


def adds_until_done(body: Body) -> Body:
    """A policy that adds the number in the prompt twice and says so."""
    amount = int(body["messages"][0]["content"])
    done = sum(message["role"] == "tool" for message in body["messages"])
    return say(None, ("add", {"amount": amount})) if done < 2 else say("done")


def row(world: World, amount: int, **members: Any) -> Body:
    return world.row(str(amount), agent="adder", params={"tools": [TOOL]}, start=1, expected=1 + 2 * amount, **members)


@pytest.fixture
async def client(world: World) -> AsyncIterator[GymClient]:
    world.engine.turn = adds_until_done
    await world.add_agent("adder", "counter")
    bridge = await world.start_bridge()
    assert bridge is not None
    async with GymClient("127.0.0.1", int(world.head.rpartition(":")[2])) as made:
        yield made


async def test_the_head_server_tells_where_each_instance_is(world: World, client: GymClient) -> None:
    assert sorted(client.names("responses_api_agents")) == sorted([world.name("adder"), world.name("asker")])
    assert client.names("responses_api_models") == [world.name("policy")]
    assert sorted(client.names("resources_servers")) == sorted([world.name("counter"), world.name("grader")])


async def test_rows_come_back_verified_each_with_its_own_result(world: World, client: GymClient) -> None:
    rows = [row(world, amount, _rowidx=amount, kept={"a": [None, 1.5]}) for amount in range(16)]
    found = await collect(client, rows)
    assert sorted(result["_rowidx"] for _, result in found) == list(range(16))
    for sent, result in found:
        assert (result["reward"], result["total"]) == (1.0, sent["expected"])
        assert result["responses_create_params"]["input"] == sent["responses_create_params"]["input"]
        assert result["kept"] == sent["kept"]


async def test_an_agent_of_theirs_plays_with_our_model_and_our_environment(world: World, client: GymClient) -> None:
    played = await asyncio.gather(
        *(play(client, world.name("policy"), world.name("counter"), row(world, amount)) for amount in range(8))
    )
    for amount, result in enumerate(played):
        assert (result["reward"], result["total"]) == (1.0, 1 + 2 * amount)
        kinds = [item["type"] for item in result["response"]["output"]]
        assert kinds == ["function_call", "function_call_output"] * 2 + ["message"]


async def test_what_a_tool_refuses_is_read_by_the_model_and_the_session_continues(
    world: World, client: GymClient
) -> None:
    def clumsy(body: Body) -> Body:
        done = [message for message in body["messages"] if message["role"] == "tool"]
        if done:
            assert "amount" in done[0]["content"]
        return say(None, ("add", {"amount": [2, "many"][not done]})) if len(done) < 2 else say("done")

    world.engine.turn = clumsy
    result = await play(client, world.name("policy"), world.name("counter"), row(world, 1))
    assert (result["reward"], result["total"]) == (1.0, 3)


async def test_a_rollout_that_fails_is_no_result_to_their_client(world: World, client: GymClient) -> None:
    world.engine.turn = lambda body: (500, {"error": "out of memory"})
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await collect(client, [row(world, 1)])
    assert raised.value.status == 500


async def test_a_client_that_comes_before_the_bridge_waits_for_it(world: World) -> None:
    """A request that found no worker is sent again, and rolled out once."""
    world.engine.turn = adds_until_done
    await world.add_agent("adder", "counter")
    port = free_port("127.0.0.1")
    await world.start_bridge(port=port)
    assert world.bridge is not None
    async with GymClient("127.0.0.1", port) as client:
        await world.bridge.__aexit__(None, None, None)
        waiting = asyncio.create_task(collect(client, [row(world, 4)]))
        await until(lambda: client.num_repeated)
        await world.start_bridge(port=port)
        ((_, result),) = await waiting
    assert result["reward"] == 1.0
    assert len(world.engine.requests) == 3


@asynccontextmanager
async def bridge_process(url: str, port: int) -> AsyncIterator[None]:
    """`gymq bridge` as a process of its own."""
    command = [str(Path(sys.executable).with_name("gymq")), "bridge", "--nats", url, "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, env=dict(os.environ))
    try:
        await until_healthy(process, port)
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def until_healthy(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as http:
        while process.returncode is None:
            try:
                async with http.get(f"http://127.0.0.1:{port}/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError(f"the bridge ended with status {process.returncode}")


async def test_all_of_it_goes_through_the_bridge_of_the_command_line(world: World) -> None:
    world.engine.turn = adds_until_done
    await world.add_agent("adder", "counter")
    port = free_port("127.0.0.1")
    async with bridge_process(world.url, port), GymClient("127.0.0.1", port) as client:
        ((_, result),) = await collect(client, [row(world, 5)])
        played = await play(client, world.name("policy"), world.name("counter"), row(world, 6))
    assert (result["total"], played["total"]) == (11, 13)
    assert json.dumps(played["response"]["output"][-1]).count("done") == 1
