import json
from typing import Any
from unittest import mock

import pytest
from gymq.workers.resources.ns_tools.worker import NsTools

import gymq
from gymq.testing import Harness, prompt, reply

ROW = {**prompt("q"), "verifier_type": "choice", "options": [{"A": "one"}, {"B": "two"}], "expected_answer": "B"}
OPTIONS = {
    "verifiers": {"choice": {"name": "mcqa"}},
    "nemo_skills_tool_overrides": {"PythonTool": {"exec_timeout_s": 60}},
}
TOOL = "stateful_python_code_exec"


async def run(session, code: str) -> dict[str, Any]:
    result = await session.call(TOOL, {"code": code})
    assert result.status == 200, result.output
    return json.loads(result.output)


@pytest.fixture
async def env():
    async with Harness(NsTools, OPTIONS) as harness:
        yield harness


async def test_the_notebook_shows_the_value_of_the_last_line_and_keeps_names(env):
    session = await env.session(ROW)
    assert await run(session, "x = 2") == {"process_status": "completed", "stdout": "", "stderr": ""}
    assert (await run(session, "print('a')\nx + 1"))["stdout"] == "a\n3\n"


async def test_an_exception_is_shown_with_its_traceback(env):
    answer = await run(await env.session(ROW), "print('so far')\n1 / 0")
    assert (answer["process_status"], answer["stdout"]) == ("error", "so far\n")
    assert "ZeroDivisionError: division by zero" in answer["stderr"]


async def test_a_time_limit_is_told_and_counted():
    async with Harness(
        NsTools, OPTIONS | {"nemo_skills_tool_overrides": {"PythonTool": {"exec_timeout_s": 0.5}}}
    ) as env:
        session = await env.session(ROW)
        assert (await run(session, "while True: pass"))["process_status"] == "timeout"
        verdict = await session.verify(ROW, reply("Answer: B"))
    members = verdict.fields
    assert (members["num_tool_calls"], members["tool_timeout_count"]) == (1, 1)


@pytest.mark.parametrize(("disabled", "status"), [(False, "completed"), (True, "error")])
async def test_a_notebook_that_was_lost_gets_its_names_again_unless_that_is_disabled(disabled, status):
    async with Harness(NsTools, OPTIONS | {"disable_session_restore": disabled}) as env:
        session = await env.session(ROW)
        await run(session, "x = 2")
        await run(session, "import os; os._exit(1)")
        assert (await run(session, "x"))["process_status"] == status


@pytest.mark.parametrize("name", ["PythonTool", "DirectPythonTool"])
async def test_options_of_nemo_skills_are_accepted(name):
    options = {
        "nemo_skills_tools": [f"nemo_skills.mcp.servers.python_tool::{name}"],
        "nemo_skills_tool_overrides": {name: {"exec_timeout_s": 30}},
        "verifiers": {"choice": {"type": "resources_servers", "name": "mcqa"}},
        "sandbox_host": "localhost",
        "sandbox_port": 6000,
        "python_tool_port": 8765,
        "verbose_tool_logging": True,
        "disable_session_restore": True,
    }
    async with Harness(NsTools, options) as env:
        assert (await run(await env.session(ROW), "1 + 1"))["stdout"] == "2\n"


async def test_the_verdict_is_that_of_the_verifier_of_the_row(env):
    verdict = await (await env.session(ROW)).verify(ROW, reply("\\boxed{B}"))
    assert verdict.reward == 1.0
    assert verdict.fields["delegated_response"]["extracted_answer"] == "B"
    assert (await env.verify(ROW, reply("\\boxed{A}"))).reward == 0.0


async def test_an_unknown_verifier_makes_the_row_invalid(env):
    with pytest.raises(gymq.InvalidTask, match="'else'"):
        await env.verify(ROW | {"verifier_type": "else"}, reply("B"))


async def test_a_row_that_does_not_fit_the_verifier_is_invalid(env):
    with pytest.raises(gymq.InvalidTask, match="options"):
        await env.verify({**prompt("q"), "verifier_type": "choice", "options": 3}, reply("B"))


async def test_a_verifier_that_fails_is_no_reward(env):
    async def fail(_):
        raise KeyError("gone")

    env.author._verifiers["choice"]._author.verify = fail
    with pytest.raises(gymq.RolloutError) as raised:
        await env.verify(ROW, reply("B"))
    assert (raised.value.failure_class, raised.value.retryable) == (gymq.FailureClass.COMPONENT_FAILED, True)


async def test_a_verdict_that_is_retried_counts_the_calls(env, monkeypatch):
    session = await env.session(ROW)
    await run(session, "1")
    verifier = env.author._verifiers["choice"]._author
    with monkeypatch.context() as failing:
        failing.setattr(verifier, "verify", mock.AsyncMock(side_effect=KeyError("gone")))
        with pytest.raises(gymq.RolloutError):
            await session.verify(ROW, reply("Answer: B"))
    assert (await session.verify(ROW, reply("Answer: B"))).fields["num_tool_calls"] == 1


async def test_arguments_that_do_not_fit_are_told_to_the_model_and_counted(env):
    session = await env.session(ROW)
    assert "code" in json.loads((await session.call(TOOL, {})).output)["error"]
    assert (await session.verify(ROW, reply("B"))).fields["num_tool_calls"] == 1


async def test_no_tools_is_said():
    async with Harness(NsTools, OPTIONS | {"tools": []}) as env:
        result = await (await env.session(ROW)).call(TOOL, {"code": "1"})
    assert json.loads(result.output) == {"error": "No tools configured"}


async def test_verification_ends_the_notebook_even_if_it_is_refused(env):
    session = await env.session(ROW)
    await run(session, "1")
    with pytest.raises(gymq.InvalidTask):
        await session.verify(ROW | {"verifier_type": "else"}, reply("B"))
    assert not env.author.sandbox._sessions


@pytest.mark.parametrize(
    ("options", "said"),
    [({"tools": ["rocket"]}, "rocket"), ({"verifiers": {"x": {"name": "math_with_code"}}}, "keeps state")],
)
async def test_options_that_cannot_work_are_refused_at_the_start(options, said):
    with pytest.raises(gymq.OptionsError, match=said):
        async with Harness(NsTools, options):
            pass
