"""A program in a process of its own that asks the model and calls the session's tools, knowing URLs and keys alone."""

import json
import sys
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.ext.gateway import Capture, Gateway
from gymq.ext.mcp import ToolGateway
from gymq.sandbox import Subprocess
from gymq.testing import prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.world import World, new_client
from tests.support.worlds import empty_world as empty_world
from tests.support.worlds import quick as quick
from tests.support.worlds import world as world
from tests.workers.agents.crashes import with_a_crash

pytest.importorskip("mcp", reason='mcp is not installed: pip install "gymq[mcp]"')

PROGRAM = """
import asyncio, json, os, urllib.request
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

def ask(text):
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps({"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}).encode(),
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["content"][0]["text"]

async def main():
    server = json.load(open(".mcp.json"))["mcpServers"]["gymq"]
    async with httpx2.AsyncClient(headers=server["headers"], timeout=60) as http:
        async with Client(streamable_http_client(server["url"], http_client=http)) as client:
            for amount in (2, 3):
                ask(f"May I add {amount}?")
                await client.call_tool("add", {"amount": amount})

asyncio.run(main())
"""
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add to the sum.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    "strict": True,
}


class Plays(gymq.Agent):
    """Lets the program play in the rollout's session."""

    class Options(gymq.AgentOptions):
        then: str = "true"  # what the shell does after the program

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        capture = Capture(rollout)
        async with (
            Gateway() as models,
            models.admit(rollout.id, capture.ask) as admission,
            ToolGateway() as tools,
            tools.offer(rollout, session, on_failure=capture.fail) as offer,
            Subprocess() as place,
        ):
            await place.write(".mcp.json", offer.settings)
            await place.write("program.py", PROGRAM.encode())
            script = f"{sys.executable} program.py; {self.options.then}"
            await capture.watch(place.run(script, wall_s=rollout.time_left(), env=admission.env))
        rollout.output = [*capture.conversation().output, *offer.items]


class Sum(gymq.Resources[gymq.Row, list[int]]):
    """Reward 1 if the sum is 5. Notes every call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.added: list[int] = []

    async def open(self, row: gymq.Row) -> list[int]:
        return []

    @gymq.tool
    async def add(self, state: list[int], amount: int) -> int:
        """Add to the sum."""
        self.added.append(amount)
        state.append(amount)
        return sum(state)

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, list[int]]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(float(sum(state) == 5))


async def test_a_program_asks_and_plays_over_nats_and_the_state_it_leaves_is_verified(world: World) -> None:
    await world.add_agent("plays", "counter", agent=Plays)
    await world.start_bridge()
    async with new_client(world) as client:
        status, result = await client.run(world.row(agent="plays", params={"tools": [ADD]}, start=3, expected=8))
    assert (status, result["reward"], result["total"]) == (200, 1.0, 8)
    outputs = [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert [json.loads(output) for output in outputs] == [{"total": 5}, {"total": 8}]


@pytest.mark.nightly
async def test_a_session_that_is_lost_ends_the_program(world: World) -> None:
    class Loses(Plays):
        async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
            for runner in world.resources:
                await runner.local.close_all()
            await super().converse(rollout, session)

    await world.add_agent("loses", "counter", agent=Loses, then="sleep 600")
    await world.start_bridge()
    async with new_client(world) as client:
        status, result = await client.run(world.row(agent="loses", params={"tools": [ADD]}, start=3, expected=8))
    assert (status, result["error"]["class"]) == (500, gymq.FailureClass.SESSION_LOST)


@pytest.mark.parametrize(
    ("at", "hears_last"),
    [
        pytest.param(3, False, id="during-a-tool"),
        pytest.param(4, True, id="between-tools", marks=pytest.mark.nightly),
    ],
)
async def test_a_rollout_that_continues_after_a_crash_runs_no_tool_twice(
    bus: Bus, run: str, at: int, hears_last: bool
) -> None:
    """Its effects are the session, then twice the model and the tool, then the verdict."""
    row = prompt("Add up to 5.", tools=[ADD])
    async with AgentHarness(Plays, Sum, lambda params: reply("Yes.")) as harness:
        done = await with_a_crash(bus, run, harness, row, at, hears_last=hears_last)
        assert harness._author.added == [2, 3]  # type: ignore[attr-defined]
    assert (done.verdict.reward, done.num_model_calls) == (1.0, 2)
