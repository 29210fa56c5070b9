"""Where engines put token ids and log probs in a chat completion, beside its list of log probs.

| engine | prompt | sampled tokens |
| --- | --- | --- |
| vLLM | the reply | the choice |
| SGLang | the choice, or `sglext` | the choice (two names), `sglext`, or `meta_info` with the log probs |
| Dynamo | `nvext`, or its `engine_data` | `nvext`, or its `engine_data` with the log probs |
| TensorRT-LLM | | the choice |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gymq.responses import InvalidReply

_Path = tuple[str | int, ...]

_PROMPTS: Sequence[_Path] = (
    ("prompt_token_ids",),
    ("choices", 0, "prompt_token_ids"),
    ("nvext", "prompt_token_ids"),
    ("nvext", "engine_data", "prompt_token_ids"),
    ("sglext", "input_ids"),
)
_SAMPLED: Sequence[_Path] = (
    ("choices", 0, "token_ids"),
    ("choices", 0, "response_token_ids"),
    ("nvext", "completion_token_ids"),
    ("nvext", "engine_data", "completion_token_ids"),
    ("sglext", "output_ids", 0),
)
_LOG_PROBS: Sequence[_Path] = (("nvext", "engine_data", "completion_logprobs"),)
_PAIRS: _Path = ("choices", 0, "meta_info", "output_token_logprobs")  # log prob, id, text or null

_OF_REPLY = ("prompt_token_ids", "nvext", "sglext")
_OF_CHOICE = ("prompt_token_ids", "token_ids", "response_token_ids", "meta_info", "logprobs", "routed_experts")


def prompt_ids(completion: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the ids of the prompt, by the place where they stand.

    Raises:
        InvalidReply: a place holds something else; so it is with the other functions.
    """
    return dict(_lists(completion, _PROMPTS, list[int], "token ids"))


def sampled_ids(completion: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the ids of the sampled tokens, by the place where they stand."""
    found = dict(_lists(completion, _SAMPLED, list[int], "token ids"))
    return found | {name: [token for _, token, _ in pairs] for name, pairs in _pairs(completion)}


def log_probs(completion: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the log probs of the sampled tokens that stand beside ids, by their place."""
    found = dict(_lists(completion, _LOG_PROBS, list[float], "log probs"))
    return found | {name: [log_prob for log_prob, _, _ in pairs] for name, pairs in _pairs(completion)}


def clear(completion: dict[str, Any]) -> None:
    """Remove all places from a completion, and the list of log probs, in place."""
    for name in _OF_REPLY:
        completion.pop(name, None)
    for name in _OF_CHOICE:
        completion["choices"][0].pop(name, None)


def _lists(completion: Mapping[str, Any], paths: Iterable[_Path], kind: Any, what: str) -> Iterable[tuple[str, Any]]:
    for path in paths:
        value = _value_at(completion, path)
        if value is None:
            continue
        name = _name(path)
        try:
            yield name, msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            raise InvalidReply(name, f"expected a list of {what}") from None


def _pairs(completion: Mapping[str, Any]) -> Iterable[tuple[str, list[tuple[float, int, str | None]]]]:
    kind = list[tuple[float, int, str | None]]
    return _lists(completion, [_PAIRS], kind, "log probs, each with its token id")


def _value_at(completion: Mapping[str, Any], path: _Path) -> Any:
    value: Any = completion
    for step in path:
        is_there = isinstance(value, dict) and step in value
        if isinstance(step, int):
            is_there = isinstance(value, list) and step < len(value)
        if not is_there:
            return None
        value = value[step]
    return value


def _name(path: _Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
