"""What http_resources promises about a server, its cookies, and everything that can go wrong on the way to it."""

import asyncio
import json
from typing import Any

import pytest
from gymq.workers.resources.http_resources import worker as module
from gymq.workers.resources.http_resources.service import CONNECT
from gymq.workers.resources.http_resources.tests.servers import HANGS, Scripted, counting, http
from gymq.workers.resources.http_resources.worker import HttpResources

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, prompt, reply
from tests.support.ports import free_port

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    for name in ("increment_counter", "get_counter_value", "act", "verify", "../verify")
]
ROW = {**prompt("Count.", tools=TOOLS), "initial_count": 3, "expected_count": 6}
GOOD = http(200, {"reward": 1.0})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(module, "SEED_PAUSE_S", 0.0)
    monkeypatch.setattr(type(CONNECT), "pause_s", lambda self, failed, **_: 0.0 if failed < self.tries else None)


def environment(url, **options):
    return Harness(HttpResources, {"base_url": url, **options})


async def failure(work):
    with pytest.raises(gymq.RolloutError) as raised:
        await work
    return raised.value


# A server as it should be ---------------------------------------------------------------------------------------------


async def test_a_rollout_plays_in_the_session_of_its_cookie():
    async with counting() as (server, url), environment(url) as env:
        session = await env.session(ROW)
        assert (await session.call("increment_counter", {"count": 3})).output == '{"success": true}'
        assert (await session.call("get_counter_value", {})).output == '{"count": 6}'
        verdict = await session.verify(ROW, reply("6"))
    assert (verdict.reward, verdict.fields) == (1.0, {"final_count": 6})
    assert len({session for session, _ in server.calls}) == 1


async def test_sessions_do_not_share_their_cookies():
    async with counting() as (server, url), environment(url) as env:
        sessions = [await env.session(ROW | {"initial_count": start}) for start in range(8)]
        await asyncio.gather(*(session.call("increment_counter", {"count": 1}) for session in sessions))
        counts = [(await session.call("get_counter_value", {})).output for session in sessions]
    assert counts == [f'{{"count": {start + 1}}}' for start in range(8)]
    assert len(server.counts) == 8


async def test_each_answer_may_replace_the_cookies():
    answers = {
        "/seed_session": [http(200, {}, Set_Cookie="s=one; Path=/")],
        "/act": [http(200, {}, Set_Cookie="s=two; Path=/"), http(500, "no", Set_Cookie="s=three; Path=/")],
        "/verify": [GOOD],
    }
    scripted = Scripted(answers)
    async with scripted.running() as url, environment(url) as env:
        session = await env.session(ROW)
        await session.call("act", {})
        await session.call("act", {})
        await session.verify(ROW, reply("x"))
    assert [cookie for _, cookie, _ in scripted.requests] == ["", "s=one", "s=two", "s=three"]


async def test_the_server_gets_the_row_as_it_is():
    line = json.dumps(ROW)[:-1] + ', "exact": 1.10, "big": 123456789012345678901234567890}'
    scripted = Scripted({"/verify": [GOOD]})
    async with scripted.running() as url, environment(url) as env:
        author = env.author
        row = author.parse_row(line.encode())
        state = await author.open(row)
        response: Any = reply("x")
        await author.verify(gymq.VerifyRequest(row, response, state))
        await author.close(state)
    (_, _, seeded), (_, _, verified) = scripted.requests
    assert seeded == line.encode()
    assert b'"exact":1.10' in verified
    assert b'"big":123456789012345678901234567890' in verified
    assert json.loads(verified)["response"] == reply("x")


async def test_arguments_are_the_body_of_a_tool_call():
    scripted = Scripted({"/act": [http(200, {})]})
    async with scripted.running() as url, environment(url) as env:
        await (await env.session(ROW)).call("act", {"text": "ü\ud800", "n": [1, None]})
    assert json.loads(scripted.requests[-1][2]) == {"text": "ü\ud800", "n": [1, None]}


@pytest.mark.parametrize("status", [200, 201, 400, 404, 422, 500])
async def test_the_model_reads_the_body_of_an_answer_whatever_its_status(status):
    async with Scripted({"/act": [http(status, {"detail": "so"})]}).running() as url, environment(url) as env:
        assert (await (await env.session(ROW)).call("act", {})).output == '{"detail": "so"}'


async def test_what_the_verifier_changes_in_the_row_is_part_of_the_verdict():
    said = ROW | {"response": {}, "reward": True, "initial_count": 4, "found": [1, {"a": None}]}
    async with Scripted({"/verify": [http(200, said)]}).running() as url, environment(url) as env:
        verdict = await env.verify(ROW, reply("x"))
    assert (verdict.reward, verdict.fields) == (1.0, {"initial_count": 4, "found": [1, {"a": None}]})


# A model that reaches for more than its tools -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["verify", "seed_session", "../verify", "act/../verify", "act?x=1", "unheard_of", ""])
async def test_only_tools_of_the_row_can_be_called(name):
    scripted = Scripted({})
    async with scripted.running() as url, environment(url) as env:
        assert (await (await env.session(ROW)).call(name, {})).status == 404
    assert scripted.paths() == ["/seed_session"]


# A server that fails --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken", [http(200, {}, length=500), b"HTTP/1.1 200", b"\0\1", http(503), http(502, b"<html>")]
)
async def test_a_tool_call_without_a_proper_answer_is_sent_once_and_loses_the_session(broken):
    scripted = Scripted({"/act": [broken]})
    async with scripted.running() as url, environment(url) as env:
        error = await failure((await env.session(ROW)).call("act", {}))
    assert (error.failure_class, error.retryable) == (FailureClass.SESSION_LOST, True)
    assert scripted.paths().count("/act") == 1


async def test_a_tool_that_hangs_loses_the_session_at_the_time_limit():
    scripted = Scripted({"/act": [HANGS]})
    async with scripted.running() as url, environment(url, request_timeout_s=0.5) as env:
        error = await failure((await env.session(ROW)).call("act", {}))
    assert error.failure_class is FailureClass.SESSION_LOST
    assert "in time" in error.message
    assert scripted.paths().count("/act") == 1


async def test_a_call_that_nobody_waits_for_hangs_up():
    scripted = Scripted({"/act": [HANGS]})
    async with scripted.running() as url, environment(url) as env:
        session = await env.session(ROW)
        scripted.asked.clear()
        calling = asyncio.create_task(session.call("act", {}))
        await scripted.asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await scripted.hung_up.wait()


async def test_an_answer_that_is_too_large_is_an_error_that_the_model_reads():
    large = Scripted({"/act": [http(200, "x" * 5000)]})
    async with large.running() as url, environment(url, max_answer_bytes=1000) as env:
        result = await (await env.session(ROW)).call("act", {})
    assert (result.status, "1000 bytes" in result.output) == (500, True)


@pytest.mark.parametrize("first", [http(503), http(429), http(500), http(200, {}, length=9), b"\0"])
async def test_a_seed_is_tried_again(first):
    scripted = Scripted({"/seed_session": [first, http(200, {})]})
    async with scripted.running() as url, environment(url) as env:
        await env.session(ROW)
    assert scripted.paths() == ["/seed_session"] * 2


@pytest.mark.parametrize(
    ("answer", "failure_class", "retryable", "sent"),
    [
        (http(422, {"detail": "initial_count: missing"}), FailureClass.INVALID_TASK, False, 1),
        (http(404, "nothing here"), FailureClass.COMPONENT_FAILED, False, 1),
        (http(307, "", Location="/elsewhere"), FailureClass.COMPONENT_FAILED, False, 1),
        (http(500, "RuntimeError()"), FailureClass.COMPONENT_FAILED, True, 3),
        (http(200, {}, length=10), FailureClass.COMPONENT_FAILED, True, 3),
    ],
)
async def test_a_seed_that_fails_says_why(answer, failure_class, retryable, sent):
    scripted = Scripted({"/seed_session": [answer]})
    async with scripted.running() as url, environment(url) as env:
        error = await failure(env.session(ROW))
    assert (error.failure_class, error.retryable) == (failure_class, retryable)
    assert scripted.paths() == ["/seed_session"] * sent


async def test_a_server_that_is_not_there_is_a_component_that_failed():
    async with environment(f"http://127.0.0.1:{free_port('127.0.0.1')}") as env:
        error = await failure(env.session(ROW))
    assert (error.failure_class, error.retryable) == (FailureClass.COMPONENT_FAILED, True)
    assert "cannot be reached" in error.message


async def test_a_tool_call_that_could_not_be_sent_says_so():
    async with environment("http://127.0.0.1:1") as env:
        async with Scripted({}).running() as url:
            env.author.server.base_url = url
            session = await env.session(ROW)
        error = await failure(session.call("act", {}))
    assert error.failure_class is FailureClass.COMPONENT_FAILED


# A verdict that is none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "failure_class", "retryable"),
    [
        (http(422, {"detail": "expected_count: missing"}), FailureClass.INVALID_TASK, False),
        (http(500, "KeyError()"), FailureClass.VERIFIER_FAILED, True),
        (http(404, "no"), FailureClass.VERIFIER_FAILED, False),
        (http(503, ""), FailureClass.COMPONENT_FAILED, True),
        (http(200, {"reward": 1.0}, length=900), FailureClass.COMPONENT_FAILED, True),
        (http(200, b"{"), FailureClass.VERIFIER_FAILED, True),
        (http(200, b'{"reward": NaN}'), FailureClass.VERIFIER_FAILED, True),
        (http(200, b'{"reward": 1e999}'), FailureClass.VERIFIER_FAILED, True),
        (http(200, [1.0]), FailureClass.VERIFIER_FAILED, True),
        (http(200, {}), FailureClass.VERIFIER_FAILED, True),
        (http(200, {"reward": None}), FailureClass.VERIFIER_FAILED, True),
        (http(200, {"reward": "1.0"}), FailureClass.VERIFIER_FAILED, True),
        (http(200, {"reward": 2.0}), FailureClass.VERIFIER_FAILED, True),
        (http(200, b"[" * 100_000), FailureClass.VERIFIER_FAILED, True),
        (http(200, {"reward": 0.0, "_ng_failure_class": "judge_failed"}), FailureClass.JUDGE_FAILED, True),
        (
            http(200, {"reward": 0.0, "_ng_failure_class": "x", "_ng_failure_terminal": True}),
            FailureClass.VERIFIER_FAILED,
            False,
        ),
        (http(200, {"reward": 0.0, "_ng_no_persist": True}), FailureClass.VERIFIER_FAILED, True),
    ],
)
async def test_no_verdict_is_no_reward(answer, failure_class, retryable):
    async with Scripted({"/verify": [answer]}).running() as url, environment(url) as env:
        error = await failure(env.verify(ROW, reply("x")))
    assert (error.failure_class, error.retryable) == (failure_class, retryable)


async def test_rewards_may_have_another_range():
    lower = Scripted({"/verify": [http(200, {"reward": -3})]})
    async with lower.running() as url, environment(url, reward_range=[-5, 5]) as env:
        assert (await env.verify(ROW, reply("x"))).reward == -3.0


@pytest.mark.parametrize(
    "options", [{}, {"base_url": "10.0.0.7:8000"}, {"base_url": "http://x", "reward_range": [1, 0]}]
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(gymq.OptionsError, match=r"base_url|reward_range"):
        HttpResources(options)
