"""The tools of a rollout's session, as a program finds them that speaks MCP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

import gymq
from gymq.agent import Agent, AgentOptions, Rollout, Session
from gymq.ext.mcp import Offer, ToolGateway
from tests.support.waiting import until
from tests.support.world import World, new_client

pytest.importorskip("mcp", reason='mcp is not installed: pip install "gymq[mcp]"')
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Add to the sum.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    "strict": True,
}
Program = Callable[[Offer], Awaitable[None]]


class Driver(Agent):
    """Lets a program play, then asks the model for a last word."""

    Options = AgentOptions
    program: Program

    async def converse(self, rollout: Rollout, session: Session) -> None:
        async with ToolGateway() as gateway, gateway.offer(rollout, session) as offer:
            await self.program(offer)
        for item in offer.items:
            rollout.record(item)
        await rollout.respond()


@asynccontextmanager
async def client_of(offer: Offer) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=offer.headers, timeout=60) as http,
        Client(streamable_http_client(offer.url, http_client=http)) as client,
    ):
        yield client


async def roll_out(world: World, program: Program, *tools: Any) -> tuple[int, Any]:
    """Status and result of a rollout that a program plays."""

    class Driven(Driver):
        async def converse(self, rollout: Rollout, session: Session) -> None:
            self.program = program
            await super().converse(rollout, session)

    await world.add_agent("driver", "counter", agent=Driven)
    await world.start_bridge()
    row = world.row(agent="driver", params={"tools": list(tools)}, start=3, expected=8)
    async with new_client(world) as client:
        return await client.run(row)


async def test_a_program_plays_in_the_session_of_the_rollout(world: World) -> None:
    listed: list[Any] = []

    async def play(offer: Offer) -> None:
        async with client_of(offer) as client:
            listed.extend((await client.list_tools()).tools)
            for amount in (2, 3):
                answer = await client.call_tool("add", {"amount": amount})
                assert not answer.is_error

    status, result = await roll_out(world, play, TOOL)
    assert (status, result["reward"], result["total"]) == (200, 1.0, 8)
    (tool,) = listed
    assert (tool.name, tool.description, tool.input_schema) == ("add", TOOL["description"], TOOL["parameters"])
    calls = [item for item in result["response"]["output"] if item["type"].startswith("function_call")]
    assert [item["type"] for item in calls] == ["function_call", "function_call_output"] * 2
    assert [json.loads(item["output"]) for item in calls[1::2]] == [{"total": 5}, {"total": 8}]


async def test_a_program_gets_the_error_of_a_tool(world: World) -> None:
    answers: list[str] = []

    async def play(offer: Offer) -> None:
        async with client_of(offer) as client:
            for name, arguments in (("add", {"amount": "many"}), ("verify", {}), ("add", {"amount": 5})):
                answers.append((await client.call_tool(name, arguments)).content[0].text)  # type: ignore[union-attr]

    status, result = await roll_out(world, play, TOOL)
    assert (status, result["reward"]) == (200, 1.0)
    assert "amount" in answers[0]
    assert answers[1:] == ["there is no tool named 'verify'", '{"total":8}']


async def test_only_tools_of_the_row_are_served(world: World) -> None:
    async def play(offer: Offer) -> None:
        async with client_of(offer) as client:
            assert (await client.list_tools()).tools == []
            assert (await client.call_tool("add", {"amount": 5})).is_error

    status, result = await roll_out(world, play)
    assert (status, result["total"]) == (200, 3)


async def test_calls_made_at_once_run_one_after_the_other(world: World) -> None:
    async def play(offer: Offer) -> None:
        async with client_of(offer) as client:
            await asyncio.gather(*(client.call_tool("add", {"amount": 1}) for _ in range(5)))

    status, result = await roll_out(world, play, TOOL)
    assert (status, result["reward"]) == (200, 1.0)
    outputs = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert [json.loads(output)["total"] for output in outputs] == [4, 5, 6, 7, 8]


async def test_a_program_that_hangs_up_has_few_calls_in_flight() -> None:
    class Slow:
        async def call(self, call: Any) -> Any:
            await asyncio.Event().wait()

    rollout: Any = SimpleNamespace(params={"tools": [TOOL]})
    session: Any = Slow()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"amount": 1}}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with ToolGateway() as gateway, gateway.offer(rollout, session) as offer, aiohttp.ClientSession() as http:
        requests = [
            asyncio.create_task(http.post(offer.url, json=call, headers=headers | offer.headers)) for _ in range(20)
        ]
        await until(lambda: len(offer.in_flight) >= 8)
        for request in requests:
            request.cancel()
        await asyncio.wait(requests)
        assert len(offer.in_flight) == 8


async def test_a_session_that_is_lost_ends_the_rollout_though_the_program_continues(world: World) -> None:
    async def play(offer: Offer) -> None:
        for runner in world.resources:
            await runner.local.close_all()
        async with client_of(offer) as client:
            answers = [await client.call_tool("add", {"amount": 5}) for _ in range(2)]
        assert all(answer.is_error for answer in answers)

    status, result = await roll_out(world, play, TOOL)
    assert (status, result["error"]["class"]) == (500, gymq.FailureClass.SESSION_LOST)


async def test_the_key_of_an_offer_opens_nothing_else(world: World) -> None:
    statuses: list[int] = []

    async def play(offer: Offer) -> None:
        async with aiohttp.ClientSession() as http:
            for url, headers in (
                (offer.url, {}),
                (offer.url, {"Authorization": "Bearer x"}),
                (offer.url.replace("/mcp", "x/mcp"), offer.headers),
                (offer.url + "/more", offer.headers),
                (offer.url, offer.headers | {"Host": "example.org"}),
            ):
                async with http.post(url, json={}, headers=headers) as answer:
                    statuses.append(answer.status)

    await roll_out(world, play, TOOL)
    assert statuses == [401, 401, 401, 404, 421]


async def test_an_offer_ends_with_its_block(world: World) -> None:
    kept: list[Offer] = []

    class Late(Driver):
        async def converse(self, rollout: Rollout, session: Session) -> None:
            async with ToolGateway() as gateway:
                async with gateway.offer(rollout, session) as offer:
                    kept.append(offer)
                with pytest.raises((MCPError, ExceptionGroup)):
                    async with client_of(offer) as client:
                        await client.list_tools()
            await rollout.respond()

    await world.add_agent("late", "counter", agent=Late)
    await world.start_bridge()
    async with new_client(world) as client:
        await client.result(world.row(agent="late", params={"tools": [TOOL]}))
    assert kept
