"""Replies of engines other than vLLM, written after the sources named beside each; no such engine was ever asked."""

from __future__ import annotations

from typing import Any

TOKENS: dict[str, Any] = {
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [11, 12],
    "generation_log_probs": [-0.5, -0.25],
}
"""What each of the replies says."""

_PROMPT: list[int] = TOKENS["prompt_token_ids"]
_SAMPLED: list[int] = TOKENS["generation_token_ids"]
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_TEXTS = {"tokens": [" 4", "<|im_end|>"], "token_logprobs": [-0.5, -0.25], "text_offset": [0, 2]}
_LIST = {
    "content": [
        {"token": " 4", "bytes": [32, 52], "logprob": -0.5, "top_logprobs": []},
        {"token": "<|im_end|>", "bytes": [60], "logprob": -0.25, "top_logprobs": []},
    ]
}
PAIRS = [[-0.5, 11, None], [-0.25, 12, None]]
"""The log probs and ids of SGLang."""


def _reply(choice: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "1c9f",
        "created": 1790000000,
        "model": "served",
        "choices": [{"index": 0, "finish_reason": "stop", **choice}],
        "usage": _USAGE,
        **fields,
    }


def _chat(choice: dict[str, Any], **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": " 4", "reasoning_content": None, "tool_calls": None}
    return _reply({"message": message, "logprobs": _LIST, **choice}, object="chat.completion", **fields)


def _completion(choice: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return _reply({"text": " 4", "logprobs": _TEXTS, **choice}, object="text_completion", **fields)


# python/sglang/srt/entrypoints/openai/serving_chat.py of the releases 0.5.18 to 0.5.23, with `return_token_ids`.
SGLANG_CHAT = _chat(
    {"matched_stop": 12, "prompt_token_ids": _PROMPT, "response_token_ids": _SAMPLED},
    metadata={"weight_version": "default"},
)

# The same with the name of the pull request that brought it (sgl-project/sglang#30917).
SGLANG_CHAT_BY_OTHER_NAME = _chat({"matched_stop": 12, "prompt_token_ids": _PROMPT, "token_ids": _SAMPLED})

# The same file with `return_input_ids_in_sglext` and `return_output_ids_in_sglext`, or the server's flags for them.
SGLANG_CHAT_EXTENSION = _chat({"matched_stop": 12}, sglext={"input_ids": _PROMPT, "output_ids": [_SAMPLED]})

# The same file of the release 0.5.15, with `return_prompt_token_ids` and `return_meta_info`.
SGLANG_CHAT_META_INFO = _chat(
    {
        "matched_stop": 12,
        "prompt_token_ids": _PROMPT,
        "meta_info": {"id": "1c9f", "finish_reason": {"type": "stop", "matched": 12}, "output_token_logprobs": PAIRS},
    }
)

# serving_completions.py of the release 0.5.23, with `return_token_ids`.
SGLANG_COMPLETION = _completion({"matched_stop": 12, "prompt_token_ids": _PROMPT, "token_ids": _SAMPLED})

# docs/fern/pages/use-cases/reinforcement-learning/integration-reference.md of Dynamo, with `nvext.extra_fields`.
DYNAMO_CHAT = _chat({}, nvext={"prompt_token_ids": _PROMPT, "completion_token_ids": _SAMPLED})
DYNAMO_COMPLETION = _completion({}, nvext={"prompt_token_ids": _PROMPT, "completion_token_ids": _SAMPLED})

# The same with `engine_data`, as NVIDIA-NeMo/Gym#1784 reads it. The server's parsers left one entry out of the list.
DYNAMO_CHAT_ENGINE_DATA = _chat(
    {"logprobs": {"content": _LIST["content"][:1]}},
    nvext={
        "engine_data": {
            "prompt_token_ids": _PROMPT,
            "completion_token_ids": _SAMPLED,
            "completion_logprobs": TOKENS["generation_log_probs"],
        }
    },
)

# tensorrt_llm/serve/postprocess_handlers.py of TensorRT-LLM, with `detokenize: false`: there is no text.
TENSORRT_LLM_COMPLETION = _completion({"text": "", "token_ids": _SAMPLED, "stop_reason": None})

CHATS = {
    "SGLang": SGLANG_CHAT,
    "SGLang, other name": SGLANG_CHAT_BY_OTHER_NAME,
    "SGLang, extension": SGLANG_CHAT_EXTENSION,
    "SGLang, meta_info": SGLANG_CHAT_META_INFO,
    "Dynamo": DYNAMO_CHAT,
    "Dynamo, engine data": DYNAMO_CHAT_ENGINE_DATA,
}
COMPLETIONS = {"SGLang": SGLANG_COMPLETION, "Dynamo": DYNAMO_COMPLETION}
