"""What a generative reward model is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from gymq.workers.models.genrm_model.worker import GenRMModel
from gymq.workers.models.openai_model.tests.mock_server import MockServer, as_json, starting
from gymq.workers.models.openai_model.tests.replies import completion
from gymq.workers.models.vllm_model.tests.conftest import ask

import gymq

USER = {"role": "user", "content": "Name a prime."}
ANSWERS = {"response_1": "2", "response_2": "4"}
OPTIONS = {"model": "judge", "return_token_id_information": False, "uses_reasoning_parser": True}

Start = Callable[..., Awaitable[GenRMModel]]


@pytest.fixture
async def start(server: MockServer) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    server.answers = [as_json(completion("2 is better", reasoning="4 is even."))]
    async with starting(GenRMModel, "genrm_model", base_url=server.url, **OPTIONS) as start:
        yield start


async def shown(worker: GenRMModel, server: MockServer, metadata: dict[str, str] | None) -> dict[str, Any]:
    given: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    await ask(worker, input=[USER], **given)
    return server.asked[-1].body


async def test_criterion_and_answers_stand_behind_the_conversation_in_their_roles(
    start: Start, server: MockServer
) -> None:
    body = await shown(await start(), server, {**ANSWERS, "principle": "Be right."})
    assert body["messages"] == [
        USER,
        {"role": "principle", "content": "Be right."},
        {"role": "response_1", "content": "2"},
        {"role": "response_2", "content": "4"},
    ]


@pytest.mark.parametrize(
    ("options", "principle"), [({}, {"principle": ""}), ({"supports_principle_role": False}, {"principle": "x"})]
)
async def test_a_criterion_that_is_empty_or_not_understood_is_left_out(
    start: Start, server: MockServer, options: dict[str, Any], principle: dict[str, str]
) -> None:
    body = await shown(await start(**options), server, {**ANSWERS, **principle})
    assert [message["role"] for message in body["messages"]] == ["user", "response_1", "response_2"]


@pytest.mark.parametrize("metadata", [None, {"response_1": ""}])
async def test_only_answers_that_are_there_are_shown_be_they_empty(
    start: Start, server: MockServer, metadata: dict[str, str] | None
) -> None:
    body = await shown(await start(), server, metadata)
    assert body["messages"][1:] == [{"role": name, "content": ""} for name in metadata or {}]


async def test_metadata_is_used_up(start: Start, server: MockServer) -> None:
    metadata = {**ANSWERS, "extra_body": '{"top_k": 3}', "note": "not sent"}
    body = await shown(await start(), server, metadata)
    assert "metadata" not in body
    assert body["top_k"] == 3


async def test_its_reasoning_is_apart_from_its_verdict(start: Start, server: MockServer) -> None:
    reply = await ask(await start(), input=[USER], metadata=ANSWERS)
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize("option", ["is_responses_native", "use_completions_api"])
def test_dialects_without_roles_are_refused(option: str) -> None:
    with pytest.raises(gymq.OptionsError, match=option):
        GenRMModel({**OPTIONS, "base_url": "http://a/v1", option: True})
