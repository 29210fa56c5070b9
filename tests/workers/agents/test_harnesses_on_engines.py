"""Coding agents by their names on engines as they are: what is slightly off in a reply costs no rollout its reward.

The engine reports totals of its usage only, and speaks Chat Completions. Each case is a public report of an engine, or
of a tool's output, that brought a coding agent to its end.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from gymq.workers.agents.program_agent.harnesses import HARNESSES
from gymq.workers.agents.program_agent.worker import ProgramAgent
from gymq.workers.models.openai_model.worker import OpenAIModel

import gymq
from gymq.bus import Bus
from tests.support.engine import Body, say
from tests.support.world import World, new_client

from .shells import shell_call

Call = tuple[str, str, str]  # id, name, arguments
Shell = Callable[[str], tuple[str, str]]  # from a command to the name and the arguments of a call

MOST_CALLS = 12  # of the model, titles and the like among them: who repeats a turn for ever is found out


@dataclass(frozen=True)
class Case:
    """An engine: the calls of each of its turns, of which the last one ends the conversation."""

    turns: Callable[[Shell], list[list[Call]]]
    seen: tuple[str, ...]  # what its commands print


def says(word: str) -> str:
    """A command that prints a word which is not in the command."""
    return f"echo {word[:2]}''{word[2:]}"


def after(call: Callable[[Shell], tuple[str, str]]) -> Case:
    """A call, and then a command that shows that the agent goes on."""
    return Case(lambda shell: [[("call_1", *call(shell))], [("call_2", *shell(says("afterwards")))]], ("afterwards",))


CASES = {
    "repeated_ids": Case(
        lambda shell: [[(f"{shell('')[0]}:0", *shell(says(word)))] for word in ("first", "second", "third")],
        ("first", "second", "third"),
    ),
    "one_id_for_two": Case(
        lambda shell: [[("call_1", *shell(says("first"))), ("call_1", *shell(says("second")))]], ("first", "second")
    ),
    "arguments_cut": after(lambda shell: (shell("")[0], '{"command": "ls')),
    "arguments_empty": after(lambda shell: (shell("")[0], "")),
    "unknown_tool": after(lambda shell: ("no_such_tool", "{}")),
    "binary_output": after(lambda shell: shell("printf 'a\\000b\\377\\033[31mc\\n'")),
    "large_output": after(lambda shell: shell("head -c 3000000 /dev/zero | tr '\\0' x")),
}


class OutputsSeen(gymq.Resources[gymq.Row]):
    """Reward 1 if the conversation holds what the commands print."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        row: Any = request.row
        said = json.dumps(request.response["output"])
        return gymq.Verdict(float(all(word in said for word in row.words)))


def plays(case: Case) -> Callable[[Body], Body]:
    """An engine that answers with the next turn of a case; a request without tools is one for a title."""

    def turn(body: Body) -> Body:
        tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}
        if not tools:
            return say("A title")

        def shell(command: str) -> tuple[str, str]:
            name, arguments = shell_call(tools, command)
            return name, json.dumps(arguments)

        turns = case.turns(shell)
        if "submit_and_exit" in tools:
            turns.append([("call_end", "submit_and_exit", json.dumps({"summary": "All is done.", "verified": True}))])
        number = sum(bool(message.get("tool_calls")) for message in body["messages"])
        if number >= len(turns):
            return say("All is done.")
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in turns[number]
        ]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    return turn


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        await made.add_resources("grader", OutputsSeen())
        yield made


@pytest.mark.parametrize("installed", sorted(HARNESSES), indirect=True)
@pytest.mark.parametrize("case", CASES)
async def test_a_harness_gets_its_reward(case: str, installed: str, world: World) -> None:
    world.engine.turn = plays(CASES[case])
    endpoint = {"openai_base_url": world.engine.url, "openai_api_key": "none", "openai_model": "m", "dialect": "chat"}
    await world.add_model(model=OpenAIModel(endpoint))
    await world.add_agent("coder", "grader", agent=ProgramAgent, harness=installed, max_turns=MOST_CALLS)
    await world.start_bridge(on_untrainable="allow")
    async with new_client(world) as client:
        result = await client.result(world.row("Do as asked.", agent="coder", words=CASES[case].seen))
    assert (result["reward"], result["program_error"]) == (1.0, None), result["response"]["output"]
