"""Options that cannot work are refused before anything is sent, and keys are not shown."""

from __future__ import annotations

from typing import Any

import pytest
from gymq.workers.models.vllm_model.tests.conftest import KEY
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq

GOOD = {
    "base_url": "http://localhost:8000/v1",
    "api_key": KEY,
    "model": "m",
    "return_token_id_information": False,
    "uses_reasoning_parser": False,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"base_url": "localhost:8000/v1"}, "base_url: expected a URL"),
        ({"base_url": ["http://a/v1", "ftp://b/v1"]}, "base_url: expected a URL"),
        ({"base_url": []}, "base_url: empty"),
        ({"base_url": "http://user:pass@host/v1"}, "base_url: the URL must not have a user"),
        ({"api_key": ""}, "api_key: empty"),
        ({"default_headers": {"X Y": "1"}}, "default_headers: 'X Y'"),
        ({"default_headers": {"X": "a\r\nb"}}, "default_headers: the value of X"),
        ({"extra_body": "top_k"}, "extra_body: "),
        ({"render_chat_template": True}, "render_chat_template: only with use_completions_api"),
        ({"use_completions_api": True, "tokenizer": "t"}, "tokenizer: with use_completions_api only with render_"),
        ({"engine": "llama"}, "engine: "),
        ({"use_generate_api": True, "tokenizer": "t"}, "use_generate_api: only with engine: sglang, or dynamo"),
        ({"use_generate_api": True, "engine": "sglang"}, "use_generate_api: needs a tokenizer"),
        (
            {"use_generate_api": True, "engine": "sglang", "tokenizer": "t", "uses_reasoning_parser": True},
            "use_generate_api: with uses_reasoning_parser it needs the name of reasoning_parser",
        ),
        ({"engine": "sglang", "tool_call_parser": "qwen25"}, "reasoning_parser, tool_call_parser: only with use_gen"),
        (
            {"engine": "tensorrt_llm", "return_token_id_information": True},
            "engine: tensorrt_llm gives token ids only with use_completions_api and a tokenizer",
        ),
        ({"is_responses_native": True, "tokenizer": "t"}, "is_responses_native passes"),
        ({"is_responses_native": True, "use_completions_api": True}, "is_responses_native passes"),
        (
            {"is_responses_native": True, "return_token_id_information": True},
            "is_responses_native passes requests through and cannot go with return_token_id_information",
        ),
        ({"is_responses_native": True, "sequential_reasoning_allowed": False}, "is_responses_native passes"),
        ({"is_responses_native": True, "replace_developer_role_with_system": True}, "is_responses_native passes"),
        ({"base_urls": "http://a/v1"}, "no option base_urls"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gymq.OptionsError) as caught:
        VLLMModel({**GOOD, **change}, name="policy_model")
    assert str(caught.value).startswith(f"policy_model: {sentence}")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("missing", GOOD)
def test_what_is_needed_is_demanded(missing: str) -> None:
    options = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(gymq.OptionsError, match=missing):
        VLLMModel(options)


def test_null_stands_for_nothing() -> None:
    empty = dict.fromkeys(["chat_template_kwargs", "extra_body", "sampling_overrides", "default_headers"])
    options = VLLMModel({**GOOD, **empty}).options
    assert [getattr(options, name) for name in empty] == [{}] * 4


async def test_neither_key_nor_header_values_are_shown() -> None:
    worker = VLLMModel({**GOOD, "default_headers": {"X-Key": "another-secret"}})
    shown = f"{worker!r} {worker.options!r} {worker.options} {worker.options.model_dump_json()}"
    assert KEY not in shown
    assert "another-secret" not in shown
