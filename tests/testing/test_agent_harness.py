"""gymq.testing.agent_harness: an agent's loop in this process, with a session for environments that keep state."""

import pytest
from gymq.workers.agents.simple_agent.worker import SimpleAgent

import gymq
from gymq.testing import function_call, prompt, reply
from gymq.testing.agent_harness import AgentHarness


class Start(gymq.Row):
    start: int


class Counter(gymq.Resources[Start, dict[str, int]]):
    async def open(self, row: Start) -> dict[str, int]:
        return {"count": row.start, "closed": 0}

    async def close(self, state: dict[str, int]) -> None:
        state["closed"] += 1

    @gymq.tool
    async def add(self, state: dict[str, int], amount: int) -> int:
        """Add to the counter."""
        state["count"] += amount
        return state["count"]

    async def verify(self, request: gymq.VerifyRequest[Start, dict[str, int]]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(float(state["count"]), closed=state["closed"])


def adds_twice(params):
    done = sum(item.get("type") == "function_call_output" for item in params["input"])
    return reply("done") if done == 2 else reply(function_call("add", {"amount": 5}, call_id=f"call_{done}"))


async def test_a_rollout_has_a_session_of_its_own():
    async with AgentHarness(SimpleAgent, Counter, adds_twice) as harness:
        for start in (1, 100):
            verdict, response = await harness.run({**prompt("Count"), "start": start})
            assert verdict.reward == start + 10
            assert verdict.fields == {"closed": 0}
            assert [item.get("output") for item in response["output"] if "output" in item] == [
                str(start + 5),
                str(start + 10),
            ]
        assert not harness._worker.sessions


async def test_options_reach_the_agent():
    async with AgentHarness(SimpleAgent, Counter, adds_twice, {"max_steps": 1}) as harness:
        verdict, _ = await harness.run({**prompt("Count"), "start": 0})
    assert verdict.reward == 5.0


async def test_failures_arrive_as_they_are():
    async with AgentHarness(SimpleAgent, Counter, adds_twice) as harness:
        with pytest.raises(gymq.InvalidTask, match="start"):
            await harness.run(prompt("Count"))
