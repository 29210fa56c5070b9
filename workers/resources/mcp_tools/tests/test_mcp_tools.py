"""What mcp_tools promises about MCP servers: their tools, their sessions, their deaths."""

import asyncio
import json
import sys
from pathlib import Path

import psutil
import pytest

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, prompt, reply

pytest.importorskip("mcp", reason='mcp is not installed: pip install "gymq[mcp]"')

from gymq.workers.resources.mcp_tools.worker import McpTasks

from tests.support.ports import free_port

EXAMPLE = "gymq.workers.resources.mcp_tools.example_server"
BARE = ["python", str(Path(__file__).with_name("bare_server.py"))]


def tools(*names):
    shape = {"type": "object", "properties": {}}
    return [{"type": "function", "name": name, "parameters": shape, "strict": False} for name in names]


ROW = {
    **prompt("Write it down.", tools=tools("write_note", "read_note")),
    "expected_state": [{"tool": "read_note", "arguments": {"name": "a"}, "output": "b"}],
}


def environment(**options):
    return Harness(McpTasks, {"servers": {"bare": {"command": BARE, "env": {"GIVEN": "given"}}}, **options})


def odd_row(*names):
    return {**prompt("Go.", tools=tools(*names)), "expected_answer": "x"}


async def failure(work):
    with pytest.raises(gymq.RolloutError) as raised:
        await work
    return raised.value


def servers_running():
    lines = [child.cmdline() for child in psutil.Process().children(recursive=True) if child.is_running()]
    return [line for line in lines if BARE[1] in line]


@pytest.mark.parametrize("command", [BARE, ["python", "-m", EXAMPLE]], ids=["bare", "example"])
async def test_the_state_of_the_server_decides(command):
    async with Harness(McpTasks, {"servers": {"notes": {"command": command}}}) as env:
        session = await env.session(ROW)
        assert (await session.call("write_note", {"name": "a", "text": "b"})).output == "written"
        assert (await session.call("read_note", {"name": "a"})).output == "b"
        verdict = await session.verify(ROW, reply("done"))
    assert (verdict.reward, verdict.fields["state_outputs"]) == (1.0, ["b"])


async def test_each_session_has_a_server_of_its_own():
    async with environment() as env:
        first, second = await asyncio.gather(env.session(ROW), env.session(ROW))
        await first.call("write_note", {"name": "a", "text": "b"})
        assert (await second.call("read_note", {"name": "a"})).status == 500
        assert (await second.verify(ROW, reply("done"))).reward == 0.0
        assert (await first.verify(ROW, reply("done"))).reward == 1.0


async def test_servers_end_with_their_sessions():
    async with environment() as env:
        await env.session(ROW)
        assert servers_running()
    assert not servers_running()


async def test_the_reply_decides_where_the_row_says_so():
    row = {**prompt("Say x."), "expected_answer": "x"}
    async with environment() as env:
        session = await env.session(row)
        assert (await session.verify(row, reply(" x\n"))).reward == 1.0
        assert (await session.verify(row, reply("y"))).reward == 0.0


async def test_a_server_at_a_url_is_used_the_same_way():
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", EXAMPLE, "--port", str(port)]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        options = {"servers": {"notes": {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Key": "k"}}}}
        async with Harness(McpTasks, options) as env:
            session = await until_there(env)
            await session.call("write_note", {"name": "a", "text": "b"})
            assert (await session.verify(ROW, reply("done"))).reward == 1.0
            server.kill()
            await server.wait()
            error = await failure(session.call("read_note", {"name": "a"}))
    finally:
        if server.returncode is None:
            server.kill()
    assert error.failure_class is FailureClass.SESSION_LOST


async def until_there(env):
    async with asyncio.timeout(300):
        while True:
            try:
                return await env.session(ROW)
            except gymq.RolloutError as error:
                assert error.failure_class is FailureClass.COMPONENT_FAILED  # noqa: PT017
                await asyncio.sleep(0.1)


async def test_an_error_of_a_tool_is_something_the_model_reads():
    async with environment() as env:
        session = await env.session(odd_row("read_note", "nonsense", "where"))
        missing = await session.call("read_note", {"name": "a"})
        assert (missing.status, json.loads(missing.output)) == (500, {"error": "there is no 'a'"})
        assert (await session.call("read_note", {"nam": "a"})).status == 422
        assert (await session.call("read_note", ["a"])).status == 422
        assert "nonsense gave an invalid answer" in (await session.call("nonsense", {})).output
        assert (await session.call("where", {})).status == 200


async def test_a_server_that_dies_loses_the_session():
    async with environment() as env:
        session = await env.session(odd_row("die", "where"))
        error = await failure(session.call("die", {}))
        again = await failure(session.call("where", {}))
    assert (error.failure_class, error.retryable) == (FailureClass.SESSION_LOST, True)
    assert again.failure_class is FailureClass.SESSION_LOST
    assert "bare" in error.message
    assert error.message.endswith("no disk is left")
    assert len(error.message) < 1000


async def test_a_tool_that_hangs_is_an_error_and_the_session_continues():
    async with environment() as env:
        session = await env.session(odd_row("hang", "where"))
        (opened,) = env.worker.sessions.values()
        opened._state._call_timeout_s = 0.5
        result = await session.call("hang", {})
        assert (result.status, "within 0.5 s" in result.output) == (500, True)
        opened._state._call_timeout_s = 60.0
        assert (await session.call("where", {})).status == 200


async def test_a_server_that_does_not_answer_the_verifier_is_no_reward():
    row = {**prompt("Go."), "expected_state": [{"tool": "hang", "output": "x"}]}
    async with environment(call_timeout_s=0.5) as env:
        error = await failure((await env.session(row)).verify(row, reply("done")))
    assert (error.failure_class, error.retryable) == (FailureClass.COMPONENT_FAILED, True)
    assert "hang did not finish within 0.5 s" in error.message


async def test_each_session_starts_in_an_empty_folder_that_is_deleted():
    async with environment() as env:
        folders = [Path((await (await env.session(odd_row("where"))).call("where", {})).output) for _ in range(2)]
        assert len(set(folders)) == 2
        assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert not any(folder.exists() for folder in folders)


async def test_a_server_gets_no_environment_but_its_own(monkeypatch):
    monkeypatch.setenv("OF_THE_WORKER", "key")
    async with environment() as env:
        assert (await (await env.session(odd_row("secret"))).call("secret", {})).output == "given None"


async def test_content_that_is_no_text_is_told_without_its_bytes():
    async with environment() as env:
        output = (await (await env.session(odd_row("several"))).call("several", {})).output
    first, second = output.split("\n")
    assert first == "one"
    assert json.loads(second) == {"type": "image", "mimeType": "image/png"}


async def test_only_tools_of_the_row_can_be_called():
    row = {**ROW, **prompt("Read.", tools=tools("read_note"))}
    async with environment() as env:
        session = await env.session(row)
        assert (await session.call("write_note", {"name": "a", "text": "b"})).status == 404
        assert (await session.verify(row, reply("x"))).reward == 0.0


async def test_a_row_that_offers_what_no_server_has_is_refused():
    async with environment() as env:
        error = await failure(env.session({**ROW, **prompt("Go.", tools=tools("fly"))}))
    assert error.failure_class is FailureClass.INVALID_TASK
    assert "offers fly, but the MCP servers have die, hang" in error.message
    assert not servers_running()


async def test_tools_of_the_same_name_in_two_servers_are_refused():
    server = {"command": BARE}
    async with Harness(McpTasks, {"servers": {"one": server, "two": server}}) as env:
        error = await failure(env.session(ROW))
    assert "one and two both have a tool named" in error.message


@pytest.mark.parametrize("command", [["python", "-c", "pass"], ["python", "-c", "print('no protocol')"], ["false"]])
async def test_a_server_that_does_not_start_is_a_component_that_failed(command):
    async with Harness(McpTasks, {"servers": {"bad": {"command": command}}}) as env:
        error = await failure(env.session(ROW))
    assert error.failure_class is FailureClass.COMPONENT_FAILED
    assert "the MCP server bad cannot be used" in error.message


async def test_the_last_words_of_a_server_that_does_not_start_are_told():
    command = ["python", "-c", "import sys; sys.exit('token: 0123456789; no licence')"]
    async with Harness(McpTasks, {"servers": {"bad": {"command": command}}}) as env:
        error = await failure(env.session(ROW))
    assert "no licence" in error.message


async def test_a_server_that_is_not_ready_in_time_is_given_up_and_ended():
    hangs = {"command": ["python", "-c", f"import time; time.sleep(600) # {BARE[1]}"]}
    async with Harness(McpTasks, {"servers": {"slow": hangs}, "open_timeout_s": 0.5}) as env:
        error = await failure(env.session(ROW))
    assert "not ready within 0.5 s" in error.message
    assert not servers_running()


async def test_a_row_without_an_expectation_is_refused():
    async with environment() as env:
        with pytest.raises(gymq.InvalidTask, match="expected_state or expected_answer"):
            await env.session(prompt("Go."))


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({}, "either a command or a url"),
        ({"command": ["x"], "url": "http://x"}, "either a command or a url"),
        ({"url": "x"}, "url"),
        ({"url": "http://x", "env": {"A": "b"}}, "env and cwd belong to a command"),
        ({"command": ["x"], "headers": {"A": "b"}}, "headers belong to a url"),
    ],
)
def test_options_that_do_not_fit_are_refused(server, problem):
    with pytest.raises(gymq.OptionsError, match=problem):
        McpTasks({"servers": {"s": server}})


async def test_a_program_that_is_not_there_is_told_before_anything_starts():
    with pytest.raises(gymq.OptionsError, match=r"servers\.s: there is no program 'no-such-program'"):
        await Harness(McpTasks, {"servers": {"s": {"command": ["no-such-program"]}}}).__aenter__()
