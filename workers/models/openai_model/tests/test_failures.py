"""Whatever an endpoint does, the answer is a reply or a failure that says what was wrong."""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from typing import Any

import aiohttp
import pytest
from gymq.workers.models.openai_model import endpoint
from gymq.workers.models.openai_model.retry import BROKEN, OVERLOADED, UNREACHABLE
from gymq.workers.models.openai_model.tests.conftest import KEY, Start, ask, failure
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion, response

import gymq
from gymq.ext.conversion.arguments import UNPARSED_ARGUMENTS
from gymq.responses import overflowed

GOOD = as_json(response("Hello"))
DIALECTS = pytest.mark.parametrize("dialect", ["responses", "chat"])


def good(dialect: str) -> Answer:
    return GOOD if dialect == "responses" else as_json(completion("Hello"))


def is_model_failure(found: gymq.RolloutError, *, retryable: bool) -> bool:
    return found.failure_class == gymq.FailureClass.MODEL_FAILED and found.retryable is retryable


@DIALECTS
async def test_a_busy_endpoint_is_asked_again_after_the_time_it_wants(
    start: Start, server: MockServer, waits: list[float], dialect: str
) -> None:
    busy = error("429 Too Many Requests", "slow down", Retry_After="2")
    server.answers = [busy, busy, good(dialect)]
    reply = await ask(await start(dialect=dialect))
    assert reply["output"][0]["content"][0]["text"] == "Hello"
    assert len(waits) == 2
    assert min(waits) > 2.0


async def test_an_endpoint_that_failed_once_is_asked_again(
    start: Start, server: MockServer, waits: list[float]
) -> None:
    server.answers = [error("500 Internal Server Error", "oops"), GOOD]
    await ask(await start())
    assert [asked.body for asked in server.asked] == [server.asked[0].body] * 2
    assert len(waits) == 1


@pytest.mark.parametrize(
    ("status", "tries"), [("503 Service Unavailable", OVERLOADED.tries), ("500 Internal Server Error", BROKEN.tries)]
)
async def test_tries_end(start: Start, server: MockServer, waits: list[float], status: str, tries: int) -> None:
    server.answers = [error(status, "not now")]
    found = await failure(await start(), timeout_s=1e6)
    assert is_model_failure(found, retryable=True)
    assert found.message == f"{server.url}/responses: {status}: not now (given up after {tries} tries)"
    assert len(server.asked) == tries


async def test_no_try_is_waited_for_beyond_the_deadline(start: Start, server: MockServer) -> None:
    server.answers = [error("503 Service Unavailable", "loading", Retry_After="600")]
    found = await failure(await start(), timeout_s=30.0)
    assert is_model_failure(found, retryable=True)
    assert "after the deadline" in found.message
    assert len(server.asked) == 1


@DIALECTS
@pytest.mark.parametrize(
    "status", ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "422 Unprocessable Entity"]
)
async def test_a_refusal_is_passed_on_at_once(start: Start, server: MockServer, status: str, dialect: str) -> None:
    server.answers = [error(status, "I will not")]
    found = await failure(await start(dialect=dialect))
    assert is_model_failure(found, retryable=False)
    assert f"{status}: I will not" in found.message
    assert len(server.asked) == 1


@pytest.mark.parametrize("names", [{"code": "insufficient_quota"}, {"code": 429, "type": "insufficient_quota"}])
async def test_a_used_up_quota_is_not_waited_for(start: Start, server: MockServer, names: dict[str, Any]) -> None:
    server.answers = [as_json({"error": {"message": "pay first", **names}}, "429 Too Many Requests")]
    found = await failure(await start())
    assert is_model_failure(found, retryable=False)
    assert found.curable
    assert "raise it, or set another key" in found.message
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "cure"),
    [
        ("401 Unauthorized", "the key is refused: set GYMQ_MODEL_API_KEY"),
        ("402 Payment Required", "the quota of the key is used up"),
        ("403 Forbidden", "the key may not do this"),
        ("404 Not Found", "no such path or model there: check the URL and the model's name"),
        ("501 Not Implemented", "check the URL"),
    ],
)
async def test_a_wrong_configuration_is_curable_and_the_cure_is_named(
    start: Start, server: MockServer, status: str, cure: str
) -> None:
    server.answers = [error(status, "no")]
    found = await failure(await start())
    assert is_model_failure(found, retryable=False)
    assert found.curable
    assert f"{status}: no; {cure}" in found.message


async def test_a_url_without_its_version_is_named_as_such(start: Start, server: MockServer) -> None:
    server.answers = [error("404 Not Found", "no")]
    found = await failure(await start(openai_base_url=server.url.removesuffix("/v1")))
    assert "check the URL, most end with /v1, and the model's name" in found.message


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity", "500 Internal Server Error"])
async def test_a_refused_request_is_not_curable(
    start: Start, server: MockServer, waits: list[float], status: str
) -> None:
    server.answers = [error(status, "no")]
    assert not (await failure(await start())).curable


async def test_a_web_page_is_curable(start: Start, server: MockServer) -> None:
    server.answers = [Answer(b"<html>", headers={"Content-Type": "text/html"})]
    found = await failure(await start())
    assert found.curable
    assert found.message == (
        f"{server.url}/chat/completions: answered with text/html, not JSON: check the URL, most end with /v1"
    )


async def test_redirects_are_not_followed(start: Start, server: MockServer) -> None:
    server.answers = [Answer(b"", "302 Found", {"Location": "https://elsewhere.example/"})]
    found = await failure(await start())
    assert is_model_failure(found, retryable=False)
    assert "https://elsewhere.example/" in found.message


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"error": "just text"}', "just text"),
        (b'{"message": "flat", "code": 5}', "flat"),
        (b'{"detail": "from FastAPI"}', "from FastAPI"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        (b"plain words", "plain words"),
        (b'"quoted"', "quoted"),
        (b"", "400 Bad Request"),
        (b"\xff\xfe", "400 Bad Request"),
        (b"[" * 5000, "[["),
    ],
)
async def test_error_bodies_of_any_form_are_told(start: Start, server: MockServer, body: bytes, sentence: str) -> None:
    server.answers = [Answer(body, "400 Bad Request")]
    found = await failure(await start())
    assert is_model_failure(found, retryable=False)
    assert sentence in found.message
    assert len(found.message) < 700


async def test_the_key_is_in_no_message_and_no_log(
    start: Start, server: MockServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    headers = {"X-Other": "other-secret-value", "X-Proxy-Authorization": "Token third-secret"}
    worker = await start(openai_default_headers=headers)
    padding = "x" * (endpoint.MAX_EXCERPT - 10)
    for text in (f"bad key {KEY}, other-secret-value, third-secret", f"{padding}{KEY}"):
        for status in ("401 Unauthorized", "200 OK"):
            server.answers = [error(status, text)]
            found = await failure(worker)
            shown = "".join(traceback.format_exception(found)) + repr(found) + caplog.text
            assert KEY[:6] not in shown
            assert "other-secret-value" not in shown
            assert "third-secret" not in shown


OVERFLOWS = [
    error("400 Bad Request", "Your input exceeds the context window of this model.", code="context_length_exceeded"),
    error("400 Bad Request", "This model's maximum context length is 4096 tokens. However, you requested 5000"),
    as_json({"object": "error", "message": "maximum context length is 10 tokens", "code": 400}, "400 Bad Request"),
    error("400 Bad Request", "max_tokens must be at least 1, got 0."),
    error("200 OK", "too much", code="context_length_exceeded"),
]


@DIALECTS
@pytest.mark.parametrize("answer", OVERFLOWS)
async def test_a_full_context_is_an_incomplete_reply(
    start: Start, server: MockServer, answer: Answer, dialect: str
) -> None:
    server.answers = [answer]
    reply = await ask(await start(dialect=dialect))
    assert reply["status"] == "incomplete"
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert len(server.asked) == 1


@DIALECTS
async def test_the_length_of_the_model_tells_what_a_refusal_is_about(
    start: Start, server: MockServer, dialect: str
) -> None:
    async def reply(asked: Asked) -> Answer:
        if asked.target.endswith("/models"):
            return as_json({"data": [{"id": "served", "max_model_len": 512}]})
        return error("400 Bad Request", "je 500 + 100 Tokens, erlaubt sind 512")

    server.reply = reply
    worker = await start(dialect=dialect)
    for _ in range(2):
        assert overflowed(await ask(worker, max_output_tokens=100))
    assert sum(asked.target.endswith("/models") for asked in server.asked) == 1
    assert is_model_failure(await failure(worker, max_output_tokens=600), retryable=False)


async def test_a_parameter_that_the_endpoint_does_not_know_is_no_full_context(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "Unsupported parameter: 'max_context'.")]
    assert is_model_failure(await failure(await start(dialect="chat")), retryable=False)


HISTORY = [
    {"role": "user", "content": "Go."},
    {"type": "function_call", "call_id": "c1", "name": "echo", "arguments": '{"text": "a"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a"},
]


@DIALECTS
async def test_a_history_that_the_endpoint_refuses_is_an_incomplete_reply(
    start: Start, server: MockServer, dialect: str
) -> None:
    server.answers = [error("400 Bad Request", "the conversation is not to my liking"), good(dialect)]
    reply = await ask(await start(dialect=dialect), input=HISTORY)
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert overflowed(reply)
    assert len(server.asked) == 2


async def test_a_setting_that_the_endpoint_refuses_is_not_the_fault_of_the_history(
    start: Start, server: MockServer
) -> None:
    server.answers = [error("400 Bad Request", "temperature: must be at most 2")]
    worker = await start(dialect="responses")
    assert is_model_failure(await failure(worker, input=HISTORY, temperature=3.0), retryable=False)
    assert [len(asked.body["input"]) for asked in server.asked] == [3, 1]


@DIALECTS
@pytest.mark.parametrize("arguments", ['{"text": "mkdir', "[1]", "", None])
async def test_the_history_has_arguments_that_every_engine_takes(
    start: Start, server: MockServer, dialect: str, arguments: str | None
) -> None:
    server.answers = [good(dialect)]
    written = [HISTORY[0], {**HISTORY[1], "arguments": arguments}, HISTORY[2]]
    await ask(await start(dialect=dialect), input=written)
    body = server.asked[0].body
    sent = body["input"][1] if dialect == "responses" else body["messages"][1]["tool_calls"][0]["function"]
    assert json.loads(sent["arguments"]) == ({UNPARSED_ARGUMENTS: arguments} if arguments else {})


@DIALECTS
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Answer(b"<html>Sign in</html>", headers={"Content-Type": "text/html; charset=utf-8"}), "text/html, not JSON"),
        (Answer(b'data: {"a": 1}\n\n', headers={"Content-Type": "text/event-stream"}), "text/event-stream, not JSON"),
        (Answer(b'{"created": NaN'), "not JSON"),
        (Answer(b""), "not JSON"),
        (Answer(b"[" * 100_000), "not JSON"),
        (Answer(b"[]"), "not an object"),
        (Answer(b"null"), "not an object"),
        (Answer(b"{}"), "unusable reply"),
        (as_json({"choices": 1, "output": 1}), "unusable reply"),
        (as_json({"choices": [], "output": []}), "unusable reply"),
        (as_json({"choices": [{"message": None}], "output": [None]}), "unusable reply"),
    ],
)
async def test_nonsense_is_told_and_never_a_reply(
    start: Start, server: MockServer, answer: Answer, sentence: str, dialect: str
) -> None:
    server.answers = [answer]
    found = await failure(await start(dialect=dialect))
    assert is_model_failure(found, retryable=True)
    assert found.message.startswith(server.url)
    assert sentence in found.message


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("output", None),
        ("output", [{"type": "message", "role": "author", "content": "5"}]),
        ("output", ["Hello"]),
        ("output", [{}]),
        ("output", [{"type": "unheard_of"}]),
        ("status", "queued"),
        ("status", "failed"),
    ],
)
async def test_a_reply_with_a_wrong_field_is_told_by_name(
    start: Start, server: MockServer, member: str, value: Any
) -> None:
    server.answers = [as_json({**response("Hello"), member: value})]
    found = await failure(await start())
    assert is_model_failure(found, retryable=True)
    assert member in found.message
    assert found.message.endswith("use `--dialect chat` or the option `dialect: chat`")


@pytest.mark.parametrize(("code", "retryable"), [("server_error", True), ("invalid_prompt", False)])
async def test_a_failed_reply_is_a_failure_with_its_message(
    start: Start, server: MockServer, code: str, retryable: bool
) -> None:
    failed = {**response("ignored"), "status": "failed", "error": {"code": code, "message": "it went wrong"}}
    server.answers = [as_json(failed)]
    found = await failure(await start())
    assert is_model_failure(found, retryable=retryable)
    assert "it went wrong" in found.message


async def test_half_a_body_is_tried_again_and_then_told(start: Start, server: MockServer, waits: list[float]) -> None:
    server.answers = [Answer(b'{"id": "resp', promised=500)]
    found = await failure(await start())
    assert is_model_failure(found, retryable=True)
    assert "the connection broke off" in found.message
    assert len(server.asked) == BROKEN.tries


async def test_a_broken_connection_is_made_again(start: Start, server: MockServer, waits: list[float]) -> None:
    server.answers = [Answer(b'{"id": "resp', promised=500), GOOD]
    assert (await ask(await start()))["output"][0]["content"][0]["text"] == "Hello"


async def test_what_is_no_http_is_told(start: Start, waits: list[float]) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    mail = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = mail.sockets[0].getsockname()[1]
    found = await failure(await start(openai_base_url=f"http://127.0.0.1:{port}"))
    mail.close()
    assert is_model_failure(found, retryable=True)
    assert "the connection broke off" in found.message


async def test_a_reply_without_end_is_stopped(
    start: Start, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_REPLY_BYTES", 1000)
    server.answers = [Answer(json.dumps(response("x" * 5000)).encode())]
    assert "longer than 1000 bytes" in (await failure(await start())).message


@pytest.mark.parametrize(
    ("base_url", "cure"),
    [
        (
            "http://127.0.0.1:{free}/v1",
            "cannot connect: connection refused; nothing listens there: is the server started?",
        ),
        ("http://no-such-host.invalid/v1", "unknown host: check the URL"),
    ],
)
async def test_a_dead_endpoint_is_a_failure_worth_another_try(
    start: Start, waits: list[float], base_url: str, cure: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        found = await failure(await start(openai_base_url=base_url.format(free=unused.getsockname()[1])))
    assert is_model_failure(found, retryable=True)
    assert found.curable
    assert "cannot connect" in found.message
    assert cure in found.message
    assert len(waits) == UNREACHABLE.tries - 1


async def test_an_endpoint_without_tls_names_the_scheme(start: Start, waits: list[float]) -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    plain = await asyncio.start_server(refuse, "127.0.0.1", 0)
    found = await failure(await start(openai_base_url=f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/v1"))
    plain.close()
    assert found.curable
    assert "check whether the URL begins with http:// or https://" in found.message


async def test_so_many_connections_are_made_at_a_time_that_none_takes_too_long(
    start: Start, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, connecting, most = aiohttp.TCPConnector.connect, 0, 0

    async def counted(*request: Any, **named: Any) -> Any:
        nonlocal connecting, most
        connecting += 1
        most = max(most, connecting)
        try:
            return await connect(*request, **named)
        finally:
            connecting -= 1

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", counted)
    monkeypatch.setattr(endpoint, "MAX_CONNECTING", 2)
    server.answers = [good("chat")]
    worker = await start(dialect="chat")
    await asyncio.gather(*(ask(worker) for _ in range(20)))
    assert most == 2


async def test_a_handshake_that_does_not_end_is_a_dead_endpoint(
    start: Start, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "CONNECT_TIMEOUT_S", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = await failure(await start(openai_base_url=f"https://127.0.0.1:{silent.getsockname()[1]}"))
    assert is_model_failure(found, retryable=True)
    assert "cannot connect" in found.message


async def test_an_endpoint_that_hangs_ends_with_the_deadline(start: Start, server: MockServer) -> None:
    server.reply = _never
    found = await failure(await start(), timeout_s=3.0)
    assert found.failure_class == gymq.FailureClass.DEADLINE_EXCEEDED
    assert "no answer within 3 s" in found.message
    await asyncio.wait_for(server.hung_up.wait(), 300)


async def test_cancelling_drops_the_connection(start: Start, server: MockServer) -> None:
    arrived = asyncio.Event()

    async def never(_asked: Asked) -> Answer:
        arrived.set()
        return await _never(_asked)

    server.reply = never
    asking = asyncio.create_task(ask(await start()))
    await asyncio.wait_for(arrived.wait(), 300)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(server.hung_up.wait(), 300)


async def test_requests_that_cannot_be_said_are_the_rows_fault(start: Start, server: MockServer) -> None:
    worker = await start(dialect="chat")
    found = await failure(worker, tool_choice={"type": "function", "name": "f"}, tools=[])
    assert found.failure_class == gymq.FailureClass.INVALID_TASK
    assert "tool_choice" in found.message
    assert (await failure(worker, temperature="warm")).failure_class == gymq.FailureClass.INVALID_TASK
    assert not server.asked


async def _never(_asked: Asked) -> Answer:
    return await asyncio.get_running_loop().create_future()


async def test_what_is_waited_for_names_the_host_and_the_status_while_it_is(
    start: Start, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = asyncio.Event()
    awake = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        asleep.set()
        await awake.wait()

    monkeypatch.setattr(endpoint, "sleep", sleep)
    for status, expected in (
        ("429 Too Many Requests", f"rate limited by 127.0.0.1:{server.port} (429)"),
        ("503 Service Unavailable", f"127.0.0.1:{server.port}: 503"),
    ):
        worker = await start()
        server.answers = [error(status, "wait"), GOOD]
        asleep.clear()
        awake.clear()
        asking = asyncio.create_task(ask(worker))
        async with asyncio.timeout(300):
            await asleep.wait()
        assert worker.waits() == {expected: 1}
        awake.set()
        await asking
        assert (worker.waits(), worker.num_retries()) == ({}, 1)
