"""Which tools a row offers to the model: those of its environment, some of them by name, none, or its own schemas."""

import json
from typing import Any

import pytest
from gymq.workers.agents.simple_agent.worker import SimpleAgent

import gymq
from gymq.agent.offered_tools import row_with
from gymq.protocol.messages import Generate, Message, Seed, Seeded
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.workers.agents.script import Script, agent, rollout, said

OWN = {"type": "function", "name": "own", "parameters": {"type": "object", "properties": {}}, "strict": None}


class Guess(gymq.Resources[gymq.Row, list[int]]):
    """Reward 1 if `guess` was called with the number."""

    async def open(self, row: gymq.Row) -> list[int]:
        return []

    @gymq.tool
    async def guess(self, state: list[int], number: int) -> str:
        """Guess the number."""
        state.append(number)
        return "right" if number == 7 else "wrong"

    @gymq.tool
    async def hint(self, state: list[int]) -> str:
        """Ask for a hint."""
        return "below ten"

    @gymq.tool(offered=False)
    async def cheat(self, state: list[int]) -> str:
        """Read the number."""
        return "7"

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, list[int]]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        names = [tool["name"] for tool in request.row.responses_create_params.get("tools") or []]
        return gymq.Verdict(7 in state, offered=",".join(names))


class Sums(gymq.Resources[gymq.Row]):
    """An environment without state."""

    @gymq.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> bool:
        return True


class Plain(gymq.Resources[gymq.Row]):
    """An environment without tools."""

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> bool:
        return True


def row(**params: Any) -> dict[str, Any]:
    made = prompt("Guess a number.")
    made["responses_create_params"] |= params
    return made


async def offered_to_the_model(resources: type[gymq.Resources[Any]], given: dict[str, Any]) -> tuple[Any, gymq.Verdict]:
    """Return the `tools` of the first request, absent ones as `absent`, and the verdict."""
    requests = []

    def model(params):
        requests.append(params)
        has_guessed = any(item.get("type") == "function_call_output" for item in params["input"])
        tools = [tool["name"] for tool in params.get("tools") or []]
        return reply(function_call("guess", {"number": 7})) if "guess" in tools and not has_guessed else reply("done")

    async with AgentHarness(SimpleAgent, resources, model) as harness:
        verdict, _ = await harness.run(given)
    return requests[0].get("tools", "absent"), verdict


async def test_a_row_without_tools_offers_those_of_the_environment():
    for given in (row(), row(tools=None)):
        tools, verdict = await offered_to_the_model(Guess, given)
        assert tools == [Guess.tools["guess"].schema(), Guess.tools["hint"].schema()]
        assert verdict.reward == 1.0
        assert verdict.fields == {"offered": "guess,hint"}  # the verifier reads what the model was offered


async def test_names_pick_tools_in_their_order_also_those_not_offered_otherwise():
    tools, _ = await offered_to_the_model(Guess, row(tools=["cheat", "guess"]))
    assert tools == [Guess.tools["cheat"].schema(), Guess.tools["guess"].schema()]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (None, '{"error":"there is no tool named \'cheat\'"}'),
        ([], '{"error":"there is no tool named \'cheat\'"}'),
        ([OWN], '{"error":"there is no tool named \'cheat\'"}'),
        (["cheat"], "7"),
        ([OWN | {"name": "cheat"}], "7"),
    ],
)
async def test_a_model_calls_a_tool_that_is_not_offered_only_if_its_row_names_it(tools, said):
    seen: list[str] = []

    def model(params):
        seen.extend(item["output"] for item in params["input"] if item.get("type") == "function_call_output")
        return reply("done") if seen else reply(function_call("cheat", {}))

    async with AgentHarness(SimpleAgent, Guess, model) as harness:
        await harness.run(row(tools=tools))
    assert seen == [said]


async def test_an_empty_list_offers_none():
    tools, verdict = await offered_to_the_model(Guess, row(tools=[]))
    assert tools == []
    assert verdict.reward == 0.0


async def test_schemas_of_the_row_stay_as_they_are_beside_names():
    assert (await offered_to_the_model(Guess, row(tools=[OWN])))[0] == [OWN]
    assert (await offered_to_the_model(Guess, row(tools=[OWN, "hint"])))[0] == [OWN, Guess.tools["hint"].schema()]


async def test_an_environment_without_state_offers_its_tools_too():
    assert (await offered_to_the_model(Sums, row()))[0] == [Sums.tools["add"].schema()]


async def test_an_environment_without_tools_leaves_the_row_alone():
    assert (await offered_to_the_model(Plain, row()))[0] == "absent"


@pytest.mark.parametrize(("name", "said"), [("gues", "did you mean 'guess'"), ("xyz", "it has cheat, guess, hint")])
async def test_a_name_that_no_tool_has_is_refused_with_the_nearest(name, said):
    with pytest.raises(gymq.InvalidTask, match=rf"tools\[1\]: .* no tool '{name}'; {said}"):
        await offered_to_the_model(Guess, row(tools=["guess", name]))


def test_the_rest_of_a_row_stays_byte_for_byte():
    text = b'{"id": 1.50, "responses_create_params": {"input": "\\u00e9", "temperature": 1e0}, "x":[1, 2]}'
    assert row_with(text, [OWN]) == (
        b'{"id":1.50,"responses_create_params":{"input":"\\u00e9","temperature":1e0,"tools":'
        + json.dumps([OWN], separators=(",", ":")).encode()
        + b'},"x":[1, 2]}'
    )


class Recording:
    """A journal in memory."""

    session: str | None = None

    def __init__(self, recorded: dict[str, Message] | None = None) -> None:
        self.recorded = dict(recorded or {})

    async def effect(self, key, may_wait, perform):
        if key not in self.recorded:
            self.recorded[key] = await perform()
        return self.recorded[key]

    async def moved(self, session):
        raise AssertionError("nothing is moved here")

    def close_later(self, close):
        raise AssertionError("no session is closed here")

    async def confirm(self):
        raise AssertionError("no rollout fails here")


SCHEMA = Sums.tools["add"].schema()
SCHEMA_NOW = {**SCHEMA, "description": "Add numbers, by the code that runs now."}


@pytest.mark.parametrize("known", [{}, {"env": Seeded(session=None, tools=[SCHEMA_NOW])}], ids=["new", "cached"])
async def test_a_rollout_that_is_replayed_offers_what_it_had_offered(known):
    """Another process may know the tools already, or ask an environment whose code has changed."""
    first = Script(said(), seeded=[Seeded(session=None, tools=[SCHEMA])])
    original = rollout(first, agent())
    original.recorder = journal = Recording()
    await agent().run(original)
    del journal.recorded["generate 1"]  # killed before the model's reply was recorded

    again = Script(said(), seeded=[Seeded(session=None, tools=[SCHEMA_NOW])])
    replayed = rollout(again, agent(), stateless=known)
    replayed.recorder = Recording(journal.recorded)
    await agent().run(replayed)
    assert again.of(Seed) == []
    assert again.of(Generate)[0].params["tools"] == first.of(Generate)[0].params["tools"] == [SCHEMA]
    assert replayed.row == original.row


async def test_tools_known_to_the_process_are_recorded_for_the_next():
    asked = rollout(Script(said()), agent(), stateless={"env": Seeded(session=None, tools=[SCHEMA])})
    asked.recorder = journal = Recording()
    await agent().run(asked)
    assert journal.recorded["seed"] == Seeded(session=None, tools=[SCHEMA])


async def test_a_rollout_that_may_call_tools_has_a_journal():
    assert agent().journals(rollout(Script(said()), agent()))
    known = {"env": Seeded(session=None, tools=[])}
    assert not agent().journals(rollout(Script(said()), agent(), stateless=known))
    assert not agent().journals(rollout(Script(said()), agent(), row(tools=[])))
    assert agent().journals(rollout(Script(said()), agent(), row(tools=["add"]), stateless=known))
