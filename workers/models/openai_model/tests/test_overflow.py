from __future__ import annotations

import pytest
from gymq.workers.models.openai_model.overflow import exceeds, is_context_overflow

TEXTS = {
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Anthropic, with the reply": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Bedrock": "Input is too long for requested model.",
    "Bedrock, Converse": "The model returned the following errors: input is too long for requested model",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 9691",
    "Copilot": "prompt token count of 9691 exceeds the limit of 8192",
    "DeepSeek": "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens",
    "Fireworks": "The prompt is too long: 9691, model maximum context length: 8191",
    "Gemini": "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    "Groq": "Please reduce the length of the messages or completion.",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length",
    "LMDeploy": "input length 9691 and max_new_tokens exceed session_len 8192",
    "llama.cpp": "request (9691 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "llama.cpp, early": "the request exceeds the available context size. try increasing the context size",
    "MLC": "Request prompt has 9691 tokens in total, larger than the model capacity 8192.",
    "MiniMax": "invalid params, context window exceeds limit",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 8192 (requested: 9691)",
    "Ollama": "the input length exceeds the context length",
    "OpenAI": "Your input exceeds the context window of this model.",
    "Qwen": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "SGLang": "The input (9691 tokens) is longer than the model's context length (8192 tokens).",
    "SGLang, with the reply": "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9691 `inputs` tokens",
    "TGI, early": "Input validation error: `inputs` must have less than 1024 tokens. Given: 9691",
    "TensorRT-LLM": "The sum of prompt length (9691.0) and query length (0) should not exceed max_num_tokens (8192)",
    "TensorRT-LLM, model": "prompt length (9691) plus max_tokens (16) should not exceed max_seq_len (8192)",
    "vLLM /responses": "The engine prompt length 9691 exceeds the max_model_len 8192. Please reduce prompt.",
    "vLLM": "The decoder prompt (length 9691) is longer than the maximum model length of 8192.",
    "vLLM, early": "This model's maximum context length is 512 tokens. However, your prompt contains 10050 characters",
    "vLLM, no room": "max_tokens must be at least 1, got -1499.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Zhipu": "Prompt exceeds max length",
}

OTHERS = [
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
    "max_tokens=9999 cannot be greater than max_model_len=512. Please request fewer output tokens.",
    "max_tokens=9999 cannot be greater than max_model_len=max_total_tokens=512. Please request fewer output tokens.",
    "max_completion_tokens is too large: 9999.This model supports at most 8192 completion tokens.",
    "Rate limit reached: tokens per minute (TPM): Limit 6000, Requested 9691, please reduce the length of the messages",
    "[{'loc': ('body',), 'msg': 'one kind of constraint', 'input': 'What is a context length?'}]",
    "Invalid value for 'temperature': must be at most 2",
    "metadata: too many properties; the maximum is 16",
    "Invalid schema for function 'echo'",
]


@pytest.mark.parametrize("said", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("status", [200, 400, 413, 422, 500])
def test_engines_report_a_full_context_in_many_words(said: str, status: int) -> None:
    assert is_context_overflow(status, "", said)


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error", "1261"])
def test_a_code_is_enough(code: str) -> None:
    assert is_context_overflow(400, code, "no")


@pytest.mark.parametrize("said", OTHERS)
def test_other_refusals_are_not_a_full_context(said: str) -> None:
    assert not is_context_overflow(400, "", said)


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_other_statuses_are_not_a_full_context(status: int) -> None:
    assert not is_context_overflow(status, "", "maximum context length")


@pytest.mark.parametrize(
    ("said", "asked", "too_long"),
    [
        ("30,000 + 4,096 tokens do not fit: 32768 at most", 4096, True),
        ("prompt of 33000 tokens, but the model takes 32768", 0, True),
        ("prompt of 32000 tokens, but the model takes 32768", 1024, True),
        ("prompt of 32000 tokens, but the model takes 32768", 0, False),
        ("the model takes 32768", 0, False),
        ("the model takes 32768", 1024, False),
        ("max_tokens 40000 is more than 32768", 40000, False),
        ("40000 tokens in a minute, the most is 32768: rate limit", 0, False),
        ("33000 is too much", 0, False),
        ("1" * 5000, 0, False),
    ],
)
def test_numbers_say_that_a_conversation_is_too_long(said: str, asked: int, too_long: bool) -> None:
    assert exceeds(said, 32768, asked) is too_long
