"""Servers of SGLang, Dynamo and TensorRT-LLM in their forms, in front of a script that samples odd tokens.

Written after `serving_chat.py`, `http_server.py` and `tokenizer_manager.py` of SGLang 0.5.23, the reference of Dynamo's
RL integration, and `openai_protocol.py` of TensorRT-LLM. No such server was ever asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, as_json, error
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token

LOG_PROB = -0.5
CALL = '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>'
_BEGIN, _END = "<tool_call>", "</tool_call>"
_KNOWN_TO_TENSORRT_LLM = frozenset(
    {
        *("model", "prompt", "logprobs", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
        *("repetition_penalty", "frequency_penalty", "presence_penalty", "detokenize", "n", "user"),
    }
)


class MockEngine:
    """Samples replies token by token of single characters, as no tokenizer would encode their text."""

    def __init__(self, form: str, tokenizer: Any, replies: list[str]) -> None:
        """
        Args:
            form: `sglang`, `dynamo` or `tensorrt_llm`.
            replies: texts with thoughts and calls as the model writes them; the next one for each request.
        """
        self.form = form
        self.tokenizer = tokenizer
        self.replies = list(replies)
        self.calls: list[tuple[list[int], list[int]]] = []  # of each request, prompt and sampled tokens
        self.max_context: int | None = None

    def aside(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        return next_token(dict(body)) if is_examination(dict(body)) and "sampling_params" not in body else None

    async def reply(self, asked: Asked) -> Answer:
        match asked.target:
            case "/separate_reasoning":
                thought, text = self._separated(asked.body["text"])
                return as_json({"reasoning_text": thought, "text": text})
            case "/parse_function_call":
                text, calls = _parsed(asked.body["text"])
                found = [{"tool_index": index, **call} for index, call in enumerate(calls)]
                return as_json({"normal_text": text, "calls": found})
            case "/generate":
                return self._generate(asked.body)
            case "/v1/chat/completions":
                return self._chat(asked.body)
            case "/v1/completions":
                return self._completion(asked.body)
        return error("404 Not Found", "Not Found")

    def _sampled(self, prompt: list[int]) -> tuple[str, list[int]]:
        text = self.replies.pop(0)
        tokens = [token for letter in text for token in self.tokenizer.encode(letter, add_special_tokens=False)]
        tokens.append(self.tokenizer.eos_token_id)
        self.calls.append((prompt, tokens))
        return text, tokens

    def _refusal(self, prompt: list[int]) -> Answer | None:
        if self.max_context is None or len(prompt) < self.max_context:
            return None
        limit = f"the model's context length ({self.max_context} tokens)"
        said = f"The input ({len(prompt)} tokens) is longer than {limit}."
        return as_json({"error": {"message": said}}, "400 Bad Request")

    def _generate(self, body: Mapping[str, Any]) -> Answer:
        prompt = body["input_ids"]
        if refusal := self._refusal(prompt):
            return refusal
        text, tokens = self._sampled(prompt)
        pairs = [[LOG_PROB, token, None] for token in tokens] if body["return_logprob"] else None
        meta = {
            "id": "5a1f",
            "finish_reason": {"type": "stop", "matched": tokens[-1]},
            "prompt_tokens": len(prompt),
            "weight_version": "default",
            "num_retractions": 0,
            "output_token_logprobs": pairs,
            "reasoning_tokens": 0,
            "completion_tokens": len(tokens),
            "cached_tokens": 0,
        }
        return as_json({"text": text, "output_ids": tokens, "meta_info": meta})

    def _chat(self, body: Mapping[str, Any]) -> Answer:
        extension = body.get("nvext", {})
        prompt = body["input_ids"] if self.form == "sglang" else extension["token_data"]
        if refusal := self._refusal(prompt):
            return refusal
        text, tokens = self._sampled(prompt)
        thought, text = self._separated(text)
        text, calls = _parsed(text) if body.get("tools") else (text, [])
        message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": thought or None}
        message["tool_calls"] = [
            {"id": f"call_{len(self.calls)}_{index}", "index": index, "type": "function", "function": _function(call)}
            for index, call in enumerate(calls)
        ] or None
        choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": self._log_probs(tokens)}
        choice["finish_reason"] = "tool_calls" if calls else "stop"
        completion: dict[str, Any] = {"id": "5a1f", "object": "chat.completion", "created": 5, "model": "served"}
        completion |= {"choices": [choice], "usage": _usage(prompt, tokens)}
        if self.form == "sglang" and body.get("return_token_ids"):
            choice |= {"prompt_token_ids": prompt, "response_token_ids": tokens}
        elif self.form == "dynamo":
            known = {"prompt_token_ids": prompt, "completion_token_ids": tokens}
            completion["nvext"] = {name: known[name] for name in extension["extra_fields"] if name in known}
        return as_json(completion)

    def _completion(self, body: Mapping[str, Any]) -> Answer:
        if self.form == "tensorrt_llm" and (unknown := body.keys() - _KNOWN_TO_TENSORRT_LLM):
            return error("400 Bad Request", f"Extra inputs are not permitted: {sorted(unknown)}")
        prompt = body["prompt"]
        text, tokens = self._sampled(prompt)
        words = [self.tokenizer.decode([token]) for token in tokens]
        log_probs = {"tokens": words, "token_logprobs": [LOG_PROB] * len(tokens), "text_offset": [], "top_logprobs": []}
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        choice["logprobs"] = log_probs if body.get("logprobs") else None
        if self.form == "tensorrt_llm" and body.get("detokenize") is False:
            choice |= {"text": "", "token_ids": tokens}
        return as_json({"id": "5", "created": 5, "model": "m", "choices": [choice], "usage": _usage(prompt, tokens)})

    def _log_probs(self, tokens: list[int]) -> dict[str, Any]:
        return {"content": [{"token": self.tokenizer.decode([token]), "logprob": LOG_PROB} for token in tokens]}

    def _separated(self, text: str) -> tuple[str, str]:
        thought, mark, rest = text.removeprefix("<think>").partition("</think>")
        return (thought, rest) if mark else ("", text)


def _parsed(text: str) -> tuple[str, list[dict[str, str]]]:
    before, mark, rest = text.partition(_BEGIN)
    if not mark:
        return text, []
    call = json.loads(rest.partition(_END)[0])
    return before, [{"name": call["name"], "parameters": json.dumps(call["arguments"])}]


def _function(call: Mapping[str, str]) -> dict[str, str]:
    return {"name": call["name"], "arguments": call["parameters"]}


def _usage(prompt: list[int], tokens: list[int]) -> dict[str, int]:
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(tokens),
        "total_tokens": len(prompt) + len(tokens),
    }
