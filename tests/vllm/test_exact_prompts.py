"""Conversations with engines behind HTTP: what was sampled goes back to the engine as the very same tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from gymq.workers.models.openai_model.tests.mock_server import MockServer, starting
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq import responses
from gymq.model import ModelMemory
from tests.support.compatibility import record

from .mock_engine import CALL, LOG_PROB, MockEngine
from .tiny_policy import ADD, POLICY, asked

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

NUM_TURNS = 100

Start = Callable[..., Awaitable[tuple[VLLMModel, MockEngine]]]

FORMS: dict[str, dict[str, Any]] = {
    "chat of SGLang 0.5.23": {"engine": "sglang"},
    "generate of SGLang 0.5.23": {
        "engine": "sglang",
        "use_generate_api": True,
        "reasoning_parser": "qwen3",
        "tool_call_parser": "qwen25",
    },
    "chat of Dynamo 1.6": {"engine": "dynamo"},
}


@pytest_asyncio.fixture(loop_scope="session")
async def start() -> AsyncIterator[Start]:
    """Starts a worker in front of a mock engine with some replies."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(POLICY))
    async with (
        MockServer() as server,
        starting(
            VLLMModel,
            base_url=server.url,
            api_key="none",
            model="served",
            return_token_id_information=True,
            uses_reasoning_parser=True,
            tokenizer=str(POLICY),
        ) as start_worker,
    ):

        async def start(replies: list[str], **options: Any) -> tuple[VLLMModel, MockEngine]:
            engine = MockEngine(options.get("engine", "sglang"), tokenizer, replies)
            server.aside, server.reply = engine.aside, engine.reply
            return await start_worker(**options), engine

        yield start


def next_items(items: list[dict[str, Any]], reply: dict[str, Any], turn: int) -> list[dict[str, Any]]:
    """The input of the next turn: the outputs of calls, or another question."""
    calls = responses.function_calls(reply)
    new: list[Any] = [responses.function_call_output(call["call_id"], "7") for call in calls]
    return [*items, *reply["output"], *(new or [responses.user_message(f"What is {turn} + 1?")])]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("remembers", [True, False], ids=["remembers", "forgets"])
async def test_each_prompt_begins_with_all_tokens_sampled_before(start: Start, form: str, remembers: bool) -> None:
    num_turns = NUM_TURNS if remembers else 10
    script = [f"<think>I add.</think>{CALL}", "\\boxed{7}", "<think>Easy.</think>It is \\boxed{8}."]
    model, engine = await start([script[turn % 3] for turn in range(num_turns)], **FORMS[form])
    items: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, responses.user_message("What is 3 + 4?")]
    kept, known = None, list[int]()
    for turn in range(num_turns):
        request = replace(asked(items, tools=[ADD]), memory=ModelMemory(kept if remembers else None))
        reply = await model.respond(request)
        kept, item = request.memory.kept, reply["output"][-1]
        prompt, sampled = engine.calls[-1]
        assert prompt[: len(known)] == known
        assert list(item["prompt_token_ids"]) == prompt
        assert list(item["generation_token_ids"]) == sampled
        assert set(item["generation_log_probs"]) == {LOG_PROB}
        thoughts = [one for one in reply["output"] if one["type"] == "reasoning"]
        calls = responses.function_calls(reply)
        assert [bool(thoughts), bool(calls)] == [turn % 3 != 1, turn % 3 == 0]
        new = engine.tokenizer.decode(prompt[len(known) :])
        assert new.endswith("<|im_start|>assistant\n")
        assert new.count("<|im_start|>") == (4 if turn == 0 else 2)
        known = [*prompt, *sampled]
        items = next_items(items, reply, turn)
    assert engine.tokenizer.encode(engine.tokenizer.decode(known)) != known  # text would have come back as other tokens
    record(
        "Engines: conversations as one sequence of tokens",
        form,
        "a mock",
        f"{NUM_TURNS} turns with reasoning and calls",
    )


async def test_text_of_tensorrt_llm_is_that_of_its_tokens(start: Start) -> None:
    options = {"engine": "tensorrt_llm", "use_completions_api": True, "render_chat_template": True}
    model, engine = await start(["It is \\boxed{7}", "\\boxed{8}"], **options)
    items = [responses.user_message("What is 3 + 4?")]
    first = await model.respond(replace(asked(items), params={"input": items, "metadata": {"a": "b"}}))
    assert responses.output_text(first) == "It is \\boxed{7}"
    await model.respond(asked([*items, *first["output"], responses.user_message("And 1 more?")]))
    (prompt, sampled), (later, _) = engine.calls
    assert later[: len(prompt) + len(sampled)] == prompt + sampled
    record(
        "Engines: conversations as one sequence of tokens",
        "completions of TensorRT-LLM of August 2026",
        "a mock",
        "2 turns of text",
    )


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
async def test_a_conversation_that_no_longer_fits_ends_as_a_cut_reply(start: Start, options: dict[str, Any]) -> None:
    model, engine = await start(["unused"], **options)
    engine.max_context = 8
    reply = await model.respond(asked("What is 3 + 4?"))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert not engine.calls


async def test_a_reply_to_another_prompt_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, engine = await start(["\\boxed{7}"] * 9, engine="sglang")
    chat = engine._chat
    monkeypatch.setattr(engine, "_chat", lambda body: chat({**body, "input_ids": body["input_ids"][1:]}))
    with pytest.raises(gymq.RolloutError, match="differ from the tokens that were sent"):
        await model.respond(asked("What is 3 + 4?"))
