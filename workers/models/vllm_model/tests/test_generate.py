"""From a chat to SGLang's `/generate`, and back; conversations are in tests/vllm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gymq.workers.models.vllm_model.generate import generate_body, parsed
from gymq.workers.models.vllm_model.tests.recorded_replies import PAIRS

from gymq.responses import InvalidReply, InvalidRequest

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
GENERATED = {
    "text": "<think>x</think>call add",
    "output_ids": [11, 12],
    "meta_info": {
        "id": "5a",
        "finish_reason": {"type": "stop", "matched": 12},
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 1,
        "output_token_logprobs": PAIRS,
    },
}


def test_settings_have_the_names_of_the_engine() -> None:
    chat = {
        "messages": [],
        "model": "m",
        "temperature": 0.5,
        "max_completion_tokens": 7,
        "min_tokens": 2,
        "seed": 3,
        "stop": ["a"],
        "priority": 1,
        "parallel_tool_calls": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    }
    assert generate_body(chat, [1, 2]) == {
        "input_ids": [1, 2],
        "sampling_params": {
            "temperature": 0.5,
            "max_new_tokens": 7,
            "min_new_tokens": 2,
            "sampling_seed": 3,
            "stop": ["a"],
            "json_schema": '{"type": "object"}',
        },
        "priority": 1,
        "return_logprob": True,
        "logprob_start_len": -1,
    }


def test_without_a_length_the_reply_may_fill_the_context() -> None:
    assert generate_body({"messages": []}, [1])["sampling_params"] == {"max_new_tokens": None}


@pytest.mark.parametrize(("choice", "expected"), [("auto", {"skip_special_tokens": False}), ("none", {})])
def test_special_tokens_stay_in_the_text_where_calls_may_begin_with_one(choice: str, expected: dict[str, Any]) -> None:
    sampling = generate_body({"messages": [], "tools": TOOLS, "tool_choice": choice}, [1])["sampling_params"]
    assert sampling == {"max_new_tokens": None, **expected}


@pytest.mark.parametrize("wanted", [{"tool_choice": "required"}, {"response_format": {"type": "grammar"}}])
def test_what_only_a_chat_can_give_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"{next(iter(wanted))}: with use_generate_api"):
        generate_body({"messages": [], **wanted}, [1])


async def completion(answer: Any, *, tools: Any = (), **parsers: str | None) -> dict[str, Any]:
    async def native(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if path == "/separate_reasoning":
            thought, _, text = body["text"].removeprefix("<think>").partition("</think>")
            return {"reasoning_text": thought, "text": text}
        assert body["tools"] == TOOLS
        return {"normal_text": "", "calls": [{"tool_index": 0, "name": "add", "parameters": "{}"}]}

    names = {"reasoning_parser": None, "tool_call_parser": None, **parsers}
    return await parsed(answer, native, model="m", tools=list(tools), **names)


async def test_the_parsers_of_the_engine_take_the_text_apart() -> None:
    found = await completion(GENERATED, tools=TOOLS, reasoning_parser="qwen3", tool_call_parser="qwen25")
    (choice,) = found["choices"]
    (call,) = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "reasoning_content": "x", "content": ""}
    assert (call["function"], choice["finish_reason"]) == ({"name": "add", "arguments": "{}"}, "tool_calls")
    assert found["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_without_parsers_or_tools_the_text_stays_whole() -> None:
    for found in (await completion(GENERATED, tools=TOOLS), await completion(GENERATED, tool_call_parser="qwen25")):
        assert found["choices"][0]["message"] == {"role": "assistant", "content": GENERATED["text"]}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [({"text": "a"}, "meta_info"), ({**GENERATED, "output_ids": None}, "output_ids"), ({"meta_info": {}}, "meta_info")],
)
async def test_an_answer_without_tokens_is_refused(answer: Any, fault: str) -> None:
    with pytest.raises(InvalidReply, match=fault):
        await completion(answer)
