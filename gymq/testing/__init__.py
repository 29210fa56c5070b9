"""Try a Resources class without a server. An Agent class has `gymq.testing.agent_harness`.

async def test_capital():
    async with Harness(Capitals) as env:
        verdict = await env.verify({"answer": "Bern", **prompt("Capital?")}, reply("Bern, of course"))
        assert verdict.reward == 1.0
"""

from gymq.execution.loading.registry import find_class
from gymq.testing.harness import Harness, HarnessSession
from gymq.testing.scripts import JudgeRule, ScriptedJudge, ScriptedModel, function_call, prompt, reply

__all__ = [
    "Harness",
    "HarnessSession",
    "JudgeRule",
    "ScriptedJudge",
    "ScriptedModel",
    "find_class",
    "function_call",
    "prompt",
    "reply",
]
