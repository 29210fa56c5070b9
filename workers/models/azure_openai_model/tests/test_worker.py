"""Whole exchanges with a deployment over HTTP, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from gymq.workers.models.azure_openai_model import deployment
from gymq.workers.models.azure_openai_model.tests.conftest import KEY, Start
from gymq.workers.models.azure_openai_model.worker import AzureOpenAIModel
from gymq.workers.models.openai_model.retry import BROKEN, OVERLOADED, UNREACHABLE
from gymq.workers.models.openai_model.tests.conftest import ask, failure
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion

import gymq

TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": None}


async def test_a_request_goes_to_the_deployment_with_version_and_key(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hello"))]
    await ask(await start(openai_default_headers={"x-team": "blue"}), max_output_tokens=7, tools=[TOOL])
    (asked,) = server.asked
    assert asked.target == "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"
    assert (asked.headers["api-key"], asked.headers["x-team"]) == (KEY, "blue")
    assert asked.body == {
        "model": "my-deployment",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 7,
        "tools": [{"type": "function", "function": {k: TOOL[k] for k in ("name", "description", "parameters")}}],
    }


async def test_the_reply_says_its_usage_and_whether_it_was_cut_off(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hel", finish_reason="length"))]
    reply = await ask(await start())
    assert reply["output"][0]["content"][0]["text"] == "Hel"
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply["usage"]["total_tokens"] == 16


async def test_fields_that_the_client_does_not_know_arrive(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hello"))]
    await ask(await start(extra_body={"a_member_of_tomorrow": {"x": 1}}))
    assert server.asked[0].body["a_member_of_tomorrow"] == {"x": 1}


async def test_no_more_requests_at_a_time_than_configured(start: Start, server: MockServer) -> None:
    together = asyncio.Barrier(2)

    async def reply(_asked: Asked) -> Answer:
        await together.wait()
        return as_json(completion("Hello"))

    server.reply = reply
    worker = await start(num_concurrent_requests=2)
    await asyncio.gather(*(ask(worker) for _ in range(8)))
    assert server.most_in_flight == 2


async def test_a_busy_deployment_is_asked_again_after_the_time_it_wants(
    start: Start, server: MockServer, waits: list[float]
) -> None:
    server.answers = [error("429 Too Many Requests", "slow", Retry_After_Ms="10"), as_json(completion("Hello"))]
    await ask(await start())
    assert len(server.asked) == 2
    assert waits[0] > 0.01


@pytest.mark.parametrize(
    ("status", "tries"), [("503 Service Unavailable", OVERLOADED.tries), ("500 Internal Server Error", BROKEN.tries)]
)
async def test_tries_are_ours_and_end(
    start: Start, server: MockServer, waits: list[float], status: str, tries: int
) -> None:
    server.answers = [error(status, "not now")]
    found = await failure(await start(), timeout_s=1e6)
    assert (found.failure_class, found.retryable) == (gymq.FailureClass.MODEL_FAILED, True)
    assert f"{status}: not now (given up after {tries} tries)" in found.message
    assert len(server.asked) == tries


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "404 Not Found"])
async def test_a_refusal_is_passed_on_at_once_without_the_key(start: Start, server: MockServer, status: str) -> None:
    server.answers = [error(status, f"I will not, {KEY}")]
    found = await failure(await start())
    assert (found.failure_class, found.retryable) == (gymq.FailureClass.MODEL_FAILED, False)
    assert f"{status}: I will not, ***" in found.message
    assert len(server.asked) == 1


async def test_a_full_context_is_an_incomplete_reply(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "too long", code="context_length_exceeded")]
    assert (await ask(await start()))["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_half_a_body_is_tried_again(start: Start, server: MockServer, waits: list[float]) -> None:
    server.answers = [Answer(b'{"id": "c', promised=500), as_json(completion("Hello"))]
    await ask(await start())
    assert len(server.asked) == 2


async def test_nonsense_is_told(start: Start, server: MockServer) -> None:
    server.answers = [Answer(b"<html>", headers={"Content-Type": "text/html"})]
    found = await failure(await start())
    assert found.retryable
    assert "text/html, not JSON" in found.message


async def test_redirects_are_not_followed(start: Start, server: MockServer) -> None:
    async with MockServer() as elsewhere:
        elsewhere.answers = [as_json(completion("Hello"))]
        server.answers = [Answer(status="307 Temporary Redirect", headers={"Location": elsewhere.url})]
        found = await failure(await start())
    assert elsewhere.asked == []
    assert "redirects are not followed" in found.message


async def test_a_dead_endpoint_is_a_failure_worth_another_try(start: Start, waits: list[float]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        found = await failure(await start(openai_base_url=f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert found.retryable
    assert "cannot connect" in found.message
    assert len(waits) == UNREACHABLE.tries - 1


async def test_cancelling_drops_the_connection(start: Start, server: MockServer) -> None:
    async def never(_asked: Asked) -> Answer:
        return await asyncio.get_running_loop().create_future()

    server.reply = never
    asking = asyncio.create_task(ask(await start()))
    await server.busy_with(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(server.hung_up.wait(), 300)


GOOD = {
    "openai_base_url": "https://name.openai.azure.com",
    "openai_api_key": KEY,
    "openai_model": "m",
    "default_query": {"api-version": "2024-10-21"},
    "num_concurrent_requests": 8,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"default_query": {}}, "default_query: api-version is missing"),
        ({"num_concurrent_requests": 0}, "num_concurrent_requests: "),
        ({"max_concurrent_requests": 3}, "max_concurrent_requests: "),
        ({"dialect": "responses"}, "dialect: "),
        ({"openai_base_url": "name.openai.azure.com"}, "openai_base_url: expected a URL"),
    ],
)
def test_options_that_cannot_work_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gymq.OptionsError) as caught:
        AzureOpenAIModel({**GOOD, **change}, name="policy_model")
    assert str(caught.value).startswith(f"policy_model: {sentence}")


async def test_without_the_vendors_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "openai", None)
    with pytest.raises(gymq.OptionsError, match="pip install"):
        await AzureOpenAIModel(GOOD).start()
