"""Try a Resources class without a server, and audit an environment. An Agent class has `gymq.agent_harness`.

async def test_capital():
    async with Harness(Capitals) as env:
        verdict = await env.verify({"answer": "Bern", **prompt("Capital?")}, reply("Bern, of course"))
        assert verdict.reward == 1.0

async def test_nothing_fools_it():
    report = await audit("my_env")
    assert report.ok, report.problems
"""

from gymq.execution.loading.registry import find_class
from gymq.testing.auditing import audit
from gymq.testing.harness import Harness, HarnessSession
from gymq.testing.report import AuditError, AuditReport, Check
from gymq.testing.scripts import JudgeRule, ScriptedJudge, ScriptedModel, function_call, prompt, reply

__all__ = [
    "AuditError",
    "AuditReport",
    "Check",
    "Harness",
    "HarnessSession",
    "JudgeRule",
    "ScriptedJudge",
    "ScriptedModel",
    "audit",
    "find_class",
    "function_call",
    "prompt",
    "reply",
]
