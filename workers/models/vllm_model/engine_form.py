"""How each kind of engine is asked for token ids, and given a prompt in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymq.workers.models.vllm_model.sampler import FROM_CHECKPOINT


@dataclass(frozen=True)
class EngineForm:
    """What differs between the requests of engines that speak OpenAI's dialects.

    Attributes:
        prompt_path: names that lead to a prompt in tokens in the body of a chat.
        asked: fields of a body with which the reply has token ids.
        num_log_probs: `logprobs` of a completion with which the reply has those of the sampled tokens only.
        neutral: settings to send where a request has none, with neutral values.
        refused: fields of a chat request that the engine takes for mistakes.
        has_text: whether a completion has its text beside its token ids.
    """

    prompt_path: tuple[str, ...]
    asked: Mapping[str, Any]
    num_log_probs: int = 0
    neutral: Mapping[str, float] = field(default_factory=lambda: FROM_CHECKPOINT)
    refused: frozenset[str] = frozenset()
    has_text: bool = True

    def with_prompt(self, body: Mapping[str, Any], prompt: list[int]) -> dict[str, Any]:
        """Return the body of a chat whose prompt is tokens, whatever its messages."""
        value: Any = prompt
        for name in reversed(self.prompt_path):
            value = {name: value}
        return merged(body, value)


FORMS: Mapping[str, EngineForm] = {
    "vllm": EngineForm(("kv_transfer_params", "prompt_token_ids"), {"return_tokens_as_token_ids": True}),
    "sglang": EngineForm(("input_ids",), {"return_token_ids": True}),
    "dynamo": EngineForm(
        ("nvext", "token_data"),
        {"nvext": {"extra_fields": ["prompt_token_ids", "completion_token_ids", "engine_data"]}},
    ),
    "tensorrt_llm": EngineForm(
        ("prompt_token_ids",),
        {"detokenize": False},
        num_log_probs=1,
        neutral={**FROM_CHECKPOINT, "top_k": 0},
        refused=frozenset({"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "verbosity"}),
        has_text=False,
    ),
}
"""By the option `engine`."""


def merged(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with fields; objects in both are merged, and lists in both joined."""
    result = dict(body)
    for name, value in fields.items():
        given = result.get(name)
        if isinstance(given, dict) and isinstance(value, dict):
            value = merged(given, value)
        elif isinstance(given, list) and isinstance(value, list):
            value = [*given, *(one for one in value if one not in given)]
        result[name] = value
    return result
