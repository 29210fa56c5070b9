"""An urgent call says to vLLM that it goes first, where vLLM wants to know."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion, response
from gymq.workers.models.vllm_model.tests.conftest import Start, ask

from gymq.authoring import CurrentCall, Precedence, current_call
from gymq.protocol.messages import Priority
from gymq.responses import output_text

PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {},
    "/v1/completions": {"use_completions_api": True},
    "/v1/responses": {"is_responses_native": True},
}


def calls_are(priority: Priority) -> None:
    current_call.set(CurrentCall("r/0/0", float("inf"), Precedence(priority)))


async def answer(asked: Asked) -> Answer:
    if asked.target == "/v1/responses":
        return as_json(response("Hello"))
    reply = completion("Hello")
    if asked.target == "/v1/completions":
        reply["choices"] = [{"index": 0, "text": "Hello", "finish_reason": "stop"}]
    return as_json(reply)


@pytest.mark.parametrize(("path", "options"), PATHS.items(), ids=PATHS)
async def test_an_urgent_call_is_before_all_others(
    start: Start, server: MockServer, path: str, options: dict[str, Any]
) -> None:
    server.reply = answer
    worker = await start(**options)
    for priority in (Priority.NORMAL, Priority.URGENT, Priority.BACKGROUND):
        calls_are(priority)
        assert output_text(await ask(worker)) == "Hello"
    asked = [(asked.target, asked.body.get("priority")) for asked in server.asked if asked.target == path]
    assert asked == [(path, None), (path, -1), (path, None)]


async def test_a_row_may_name_its_own_place(start: Start, server: MockServer) -> None:
    server.reply = answer
    calls_are(Priority.URGENT)
    await ask(await start(), metadata={"extra_body": json.dumps({"priority": 7})})
    assert [asked.body["priority"] for asked in server.asked] == [7]


async def test_other_engines_are_not_told(start: Start, server: MockServer) -> None:
    server.reply = answer
    calls_are(Priority.URGENT)
    await ask(await start(engine="sglang"))
    assert ["priority" in asked.body for asked in server.asked] == [False]


async def test_an_engine_that_refuses_it_is_not_told_again(
    start: Start, server: MockServer, caplog: pytest.LogCaptureFixture
) -> None:
    # As vllm/engine/async_llm_engine.py says it; vllm/v1 takes the field, and heeds it with the flag only.
    refused = "Got priority -1 but Priority scheduling is not enabled."

    async def reply(asked: Asked) -> Answer:
        return error("400 Bad Request", refused) if asked.body.get("priority") else await answer(asked)

    server.reply = reply
    calls_are(Priority.URGENT)
    worker = await start()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert output_text(await ask(worker)) == "Hello"
    assert [asked.body.get("priority") for asked in server.asked] == [-1, None, None]
    (said,) = [record.message for record in caplog.records if "'priority'" in record.message]
    assert "--scheduling-policy priority" in said
