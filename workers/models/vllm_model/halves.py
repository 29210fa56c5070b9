"""Replies that an engine ended before the model did, and what continues them. Nothing here does I/O.

An engine that is given new weights may end the requests that run. What it has sampled is the beginning of the reply:
where requests are made of token ids, the next one goes on behind it. A chat cannot be continued, because an engine
reads the calls and the reasoning only of what it has sampled itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from gymq.workers.models.vllm_model.generate import GENERATE

COMPLETIONS = "/completions"

_ENDED = frozenset({"abort", "aborted"})
_COUNT_THE_REPLY = ("presence_penalty", "frequency_penalty")  # a part that has become prompt is not counted
_LENGTHS = ("max_tokens", "max_new_tokens")
_LEAST = ("min_tokens", "min_new_tokens")

Body = dict[str, Any]


class _LogProbs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]


class _Choice(msgspec.Struct):
    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    logprobs: _LogProbs


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _MetaInfo(msgspec.Struct):
    output_token_logprobs: list[Any]


class _Generated(msgspec.Struct):
    output_ids: list[int]
    meta_info: _MetaInfo
    text: str = ""


def was_ended(answer: Mapping[str, Any]) -> bool:
    """Return whether an engine ended the request, so that its answer is a part of a reply."""
    choices, meta = answer.get("choices"), answer.get("meta_info")
    listed = choices if isinstance(choices, list) else ()
    reasons = [choice.get("finish_reason") for choice in listed if isinstance(choice, dict)]
    if isinstance(meta, dict) and isinstance(meta.get("finish_reason"), dict):
        reasons.append(meta["finish_reason"].get("type"))
    return any(isinstance(reason, str) and reason in _ENDED for reason in reasons)


def num_sampled(path: str, answer: Mapping[str, Any]) -> int | None:
    """Return how many tokens a part of a reply has; None if it cannot be continued."""
    try:
        if path == COMPLETIONS:
            (choice,) = msgspec.convert(answer, _Completion).choices
            num_tokens = len(choice.token_ids)
            return num_tokens if num_tokens == len(choice.logprobs.token_logprobs) else None
        if path == GENERATE:
            given = msgspec.convert(answer, _Generated)
            num_tokens = len(given.output_ids)
            return num_tokens if num_tokens == len(given.meta_info.output_token_logprobs) else None
    except (msgspec.ValidationError, ValueError):
        pass
    return None


def continuation(path: str, body: Mapping[str, Any], part: Mapping[str, Any]) -> Body | None:
    """Return the request that goes on behind a part of its reply; None if it has to be asked again from the start."""
    num_tokens = num_sampled(path, part)
    settings = body.get("sampling_params", {}) if path == GENERATE else body
    if num_tokens is None or any(settings.get(name) for name in _COUNT_THE_REPLY) or settings.get("n", 1) != 1:
        return None
    left = {name: settings[name] - num_tokens for name in _LENGTHS if settings.get(name) is not None}
    if any(length < 1 for length in left.values()):
        return None
    left |= {name: max(0, settings[name] - num_tokens) for name in _LEAST if settings.get(name) is not None}
    if path == GENERATE:
        ids = [*body["input_ids"], *part["output_ids"]]
        return {**body, "input_ids": ids, "sampling_params": {**settings, **left}}
    (choice,) = part["choices"]
    return {**body, **left, "prompt": [*choice["prompt_token_ids"], *choice["token_ids"]]}


def joined(path: str, part: Mapping[str, Any], rest: Mapping[str, Any]) -> Body:
    """Return the answer of which a part, and then the rest, came; the rest may be a part too."""
    if path == GENERATE:
        first, last = part["meta_info"], rest["meta_info"]
        meta = {
            **last,
            **_counted(first, last),
            "output_token_logprobs": [*first["output_token_logprobs"], *last["output_token_logprobs"]],
        }
        ids = [*part["output_ids"], *rest["output_ids"]]
        return {**rest, "text": part.get("text", "") + rest.get("text", ""), "output_ids": ids, "meta_info": meta}
    (first,), (last,) = part["choices"], rest["choices"]
    choice = {
        **last,
        "text": first["text"] + last["text"],
        "token_ids": [*first["token_ids"], *last["token_ids"]],
        "prompt_token_ids": first["prompt_token_ids"],
        "logprobs": {
            name: [*first["logprobs"][name], *last["logprobs"][name]] for name in ("tokens", "token_logprobs")
        },
    }
    whole = {**rest, "choices": [choice]}
    if isinstance(part.get("usage"), dict) and isinstance(rest.get("usage"), dict):
        whole["usage"] = {**rest["usage"], **_counted(part["usage"], rest["usage"])}
    return whole


def _counted(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of tokens of a whole reply; what was sampled first is no part of its prompt."""
    prompt, begun, rest = first.get("prompt_tokens"), first.get("completion_tokens"), last.get("completion_tokens")
    if not (isinstance(prompt, int) and isinstance(begun, int) and isinstance(rest, int)):
        return {}
    counted = {"prompt_tokens": prompt, "completion_tokens": begun + rest}
    return counted | ({"total_tokens": sum(counted.values())} if "total_tokens" in last else {})
