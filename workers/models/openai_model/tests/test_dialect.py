"""The dialect of an endpoint, found by the first request."""

from __future__ import annotations

import pytest
from gymq.workers.models.openai_model.tests.conftest import Start, ask, failure
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion, response

from gymq.responses import output_text

MISSING = (
    error("404 Not Found", "File Not Found"),
    as_json({"detail": "Not Found"}, "404 Not Found"),
    as_json({"detail": "Method Not Allowed"}, "405 Method Not Allowed"),
    error("501 Not Implemented", "later"),
    Answer(b"<html>Welcome</html>", "404 Not Found", {"Content-Type": "text/html"}),
    Answer(b"<html>Welcome</html>", headers={"Content-Type": "text/html"}),
)


def serve(server: MockServer, **answers: Answer) -> None:
    """Let the server answer by the last part of the path."""

    async def reply(asked: Asked) -> Answer:
        return answers[asked.target.rpartition("/")[2]]

    server.reply = reply


def targets(server: MockServer) -> list[str]:
    return [asked.target for asked in server.asked]


@pytest.mark.parametrize("missing", MISSING)
async def test_an_endpoint_that_only_knows_chat_is_asked_in_chat(
    start: Start, server: MockServer, missing: Answer
) -> None:
    serve(server, responses=missing, completions=as_json(completion("Hello")))
    worker = await start()
    for _ in range(2):
        assert (await ask(worker))["output"][0]["content"][0]["text"] == "Hello"
    assert targets(server) == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]


async def test_an_endpoint_with_responses_is_never_asked_in_chat(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello")), error("404 Not Found", "no such response")]
    worker = await start()
    await ask(worker)
    assert "no such response" in (await failure(worker)).message
    assert targets(server) == ["/v1/responses"] * 2


async def test_a_refused_request_is_tried_in_chat_as_long_as_no_dialect_is_known(
    start: Start, server: MockServer
) -> None:
    serve(server, responses=error("400 Bad Request", "no"), completions=as_json(completion("Hello")))
    worker = await start()
    for _ in range(2):
        assert output_text(await ask(worker)) == "Hello"
    assert targets(server) == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]


async def test_a_refusal_in_both_dialects_is_that_of_the_first(start: Start, server: MockServer) -> None:
    serve(server, responses=error("400 Bad Request", "no"), completions=error("422 Unprocessable Entity", "never"))
    worker = await start()
    assert "400 Bad Request: no" in (await failure(worker)).message
    serve(server, responses=as_json(response("Hello")))
    await ask(worker)
    serve(server, responses=error("400 Bad Request", "no"))
    await failure(worker)
    assert targets(server)[2:] == ["/v1/responses"] * 2


async def test_a_path_that_refuses_the_request_is_there(start: Start, server: MockServer) -> None:
    serve(server, responses=MISSING[0], completions=error("400 Bad Request", "no"))
    worker = await start()
    for _ in range(2):
        assert not (await failure(worker)).curable
    assert targets(server) == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]


async def test_with_neither_path_the_failure_is_curable_and_nothing_is_remembered(
    start: Start, server: MockServer
) -> None:
    serve(server, responses=MISSING[0], completions=MISSING[0])
    worker = await start()
    found = await failure(worker)
    assert found.curable
    assert f"{server.url}/chat/completions: 404 Not Found" in found.message
    serve(server, responses=as_json(response("Hello")))
    await ask(worker)


async def test_a_given_dialect_is_the_only_one_asked_in(start: Start, server: MockServer) -> None:
    serve(server, responses=MISSING[0], completions=MISSING[0])
    assert "use `--dialect chat`" in (await failure(await start(dialect="responses"))).message
    assert "--dialect" not in (await failure(await start(dialect="chat"))).message
    assert targets(server) == ["/v1/responses", "/v1/chat/completions"]


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_no_endpoint_sees_the_script_of_a_simulated_model(start: Start, server: MockServer, dialect: str) -> None:
    server.answers = [as_json(response("Hello") if dialect == "responses" else completion("Hello"))]
    worker = await start(dialect=dialect)
    script = {"simulated_solution": "[]", "simulated_mistake": "[]"}
    await ask(worker, metadata=script)
    await ask(worker, metadata={**script, "user_id": "7"})
    assert [asked.body.get("metadata") for asked in server.asked] == [None, {"user_id": "7"}]
