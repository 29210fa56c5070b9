"""Token ids and log probs are taken from whichever source there is, and refused where sources differ."""

from __future__ import annotations

import copy
import json
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from gymq.workers.models.vllm_model.completion_body import decode_completion
from gymq.workers.models.vllm_model.completions import as_chat_completion
from gymq.workers.models.vllm_model.sampled_tokens import SampledTokens, read_tokenized, read_tokens
from gymq.workers.models.vllm_model.tests.recorded_replies import (
    CHATS,
    COMPLETIONS,
    DYNAMO_CHAT_ENGINE_DATA,
    SGLANG_CHAT,
    SGLANG_CHAT_META_INFO,
    TENSORRT_LLM_COMPLETION,
    TOKENS,
)

from gymq.responses import InvalidReply

BUNDLE: dict[str, Any] = {
    "prompt_token_ids": [1, 2],
    "generation_token_ids": [11, 12],
    "generation_log_probs": [-0.5, -0.25],
}
NAMED: dict[str, Any] = {
    "content": [
        {"token": "token_id:11", "logprob": -0.5, "top_logprobs": []},
        {"token": "token_id:12", "logprob": -0.25, "top_logprobs": []},
    ]
}
TEXTS = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]}


def completion(
    bundle: Any = None, prompt: Any = None, token_ids: Any = None, logprobs: Any = None, **choice: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "content": "ab", **(bundle or {})}
    choice = {"index": 0, "message": message, "token_ids": token_ids, "logprobs": logprobs, **choice}
    return {"choices": [choice], "prompt_token_ids": prompt}


def read(**sources: Any) -> tuple[Any, ...]:
    found = read_tokens(completion(**sources))
    return found.prompt_token_ids, found.generation_token_ids, found.generation_log_probs


INLINE = {"prompt": [1, 2], "token_ids": [11, 12]}
ALL = ([1, 2], [11, 12], [-0.5, -0.25])


@pytest.mark.parametrize(
    "sources",
    [
        {"bundle": BUNDLE},
        {**INLINE, "logprobs": NAMED},
        {**INLINE, "logprobs": TEXTS},
        {"bundle": BUNDLE, **INLINE, "logprobs": NAMED},
        {"prompt": ["1", "2"], "token_ids": ["11", "12"], "logprobs": NAMED},
    ],
)
def test_a_reply_that_has_everything_is_read(sources: Any) -> None:
    assert read(**sources) == ALL


def test_names_alone_leave_the_prompt_open() -> None:
    assert read(logprobs=NAMED) == (None, *ALL[1:])


def test_nothing_sampled_is_no_fault() -> None:
    assert read(logprobs={"content": []}) == (None, [], [])


def differing(name: str, value: Any) -> dict[str, Any]:
    return {**BUNDLE, name: value}


@pytest.mark.parametrize(
    ("sources", "fault"),
    [
        ({}, "log probs of the sampled tokens"),
        ({"logprobs": TEXTS}, "not named token_id"),
        ({"logprobs": {"content": [NAMED["content"][0], TEXTS["content"][1]]}}, "some are not"),
        ({"logprobs": {"content": [{"token": "token_id:x", "logprob": 0.0}]}}, "expected a list of token ids"),
        ({"logprobs": {"content": [{"token": "token_id:1,2", "logprob": 0.0}]}}, "some are not"),
        ({"logprobs": {"content": [{"token": "token_id:1token_id:2", "logprob": 0.0}]}}, "some are not"),
        ({"logprobs": {"content": [{"token": "token_id:", "logprob": 0.0}] * 2}}, "expected a list of token ids"),
        ({"logprobs": {"content": [{"token": "token_id:1"}]}}, "`token` and `logprob`"),
        ({"prompt": [1, 2], "logprobs": TEXTS}, "there are no token ids elsewhere"),
        ({"prompt": [1, 2], "token_ids": "11, 12", "logprobs": TEXTS}, r"choices\[0\].token_ids: expected a list"),
        (INLINE, "log probs of the sampled tokens"),
        ({"prompt": [1, 2], "token_ids": [11], "logprobs": TEXTS}, "2 log probs for 1 sampled tokens"),
        (
            {"prompt": [1, 2], "token_ids": [11, 13], "logprobs": NAMED},
            r"content: the ids differ from choices\[0\].token_ids",
        ),
        ({"bundle": {"prompt_token_ids": [1]}}, "generation_token_ids: missing beside prompt_token_ids"),
        ({"bundle": differing("generation_log_probs", [-0.5])}, "1 log probs for 2 sampled tokens"),
        (
            {"bundle": differing("prompt_token_ids", [3]), **INLINE, "logprobs": NAMED},
            "prompt_token_ids: the ids differ",
        ),
        (
            {"bundle": differing("generation_token_ids", [11, 13]), **INLINE, "logprobs": TEXTS},
            "token_ids: the ids differ",
        ),
        ({"bundle": differing("generation_token_ids", [11, 13]), "logprobs": NAMED}, "the ids differ"),
        ({"bundle": differing("generation_log_probs", [-0.5, -0.3]), "logprobs": NAMED}, "the log probs differ"),
    ],
)
def test_sources_that_are_partial_or_differ_are_refused(sources: Any, fault: str) -> None:
    with pytest.raises(InvalidReply, match=fault):
        read(**sources)


def test_the_tokens_end_up_on_the_message_and_nowhere_else() -> None:
    reply = completion(**INLINE, logprobs=NAMED, routed_experts="opaque")
    read_tokens(reply).put_on(reply)
    ids = {name: array("i", BUNDLE[name]) for name in ("prompt_token_ids", "generation_token_ids")}
    log_probs = array("f", BUNDLE["generation_log_probs"])
    message = {
        "role": "assistant",
        "content": "ab",
        **ids,
        "generation_log_probs": log_probs,
        "routed_experts": "opaque",
    }
    assert reply == {"choices": [{"index": 0, "message": message}]}


def outcome(read_from: Callable[[dict[str, Any]], SampledTokens], reply: dict[str, Any]) -> object:
    try:
        return read_from(reply)
    except InvalidReply as error:
        return str(error)


def test_the_body_of_a_completion_is_read_like_any_other() -> None:
    named = {"content": [{**entry, "bytes": [1], "top_logprobs": []} for entry in NAMED["content"]]}
    forms: list[Any] = [named, TEXTS, {"content": []}, {"content": None}, None]
    for logprobs in forms:
        whole = completion(**INLINE, bundle=BUNDLE, logprobs=logprobs, finish_reason="stop")
        whole |= {"id": "c1", "created": 5, "usage": {"total_tokens": 4}}
        decoded = decode_completion(json.dumps(whole).encode())
        assert outcome(read_tokens, decoded) == outcome(read_tokens, whole)
        assert {**decoded, "choices": None} == {**whole, "choices": None}
        (choice,) = decoded["choices"]
        assert {**choice, "logprobs": None} == {**whole["choices"][0], "logprobs": None}


def test_an_id_that_no_engine_has_is_refused() -> None:
    reply = completion(**{**INLINE, "token_ids": [11, 2**31]}, logprobs=TEXTS)
    with pytest.raises(InvalidReply, match="generation_token_ids: token ids must be 32-bit integers"):
        read_tokens(reply).put_on(reply)


@pytest.mark.parametrize("answer", [{}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": 3}])
def test_a_tokenized_prompt_without_ids_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidReply, match="tokens"):
        read_tokenized(answer)


@pytest.mark.parametrize("reply", CHATS.values(), ids=CHATS)
def test_the_forms_of_other_engines_are_read_however_they_are_decoded(reply: dict[str, Any]) -> None:
    for completion in (copy.deepcopy(reply), decode_completion(json.dumps(reply).encode())):
        read_tokens(completion).put_on(completion)
        message = completion["choices"][0]["message"]
        assert {name: message[name].tolist() for name in TOKENS} == TOKENS
        assert "token" not in json.dumps({**completion, "choices": None, "usage": None})
        assert completion["choices"][0].keys() <= {"index", "message", "finish_reason", "matched_stop"}


@pytest.mark.parametrize("reply", COMPLETIONS.values(), ids=COMPLETIONS)
def test_other_engines_completions_of_a_text_are_read(reply: dict[str, Any]) -> None:
    found = read_tokens(as_chat_completion(reply))
    assert [found.prompt_token_ids, found.generation_token_ids, found.generation_log_probs] == list(TOKENS.values())


def test_sampled_ids_without_the_prompt_leave_it_open() -> None:
    found = read_tokens(as_chat_completion(TENSORRT_LLM_COMPLETION))
    assert [found.prompt_token_ids, found.generation_token_ids] == [None, TOKENS["generation_token_ids"]]


def changed(reply: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    reply = copy.deepcopy(reply)
    holder = reply
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = to
    return reply


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (changed(SGLANG_CHAT, "sglext", to={"output_ids": [[11]]}), r"sglext.output_ids\[0\]: the ids differ"),
        (changed(SGLANG_CHAT, "choices", 0, "response_token_ids", to=[11]), "2 log probs for 1 sampled tokens"),
        (changed(SGLANG_CHAT, "choices", 0, "response_token_ids", to=7), "expected a list of token ids"),
        (changed(SGLANG_CHAT, "nvext", to={"prompt_token_ids": [9]}), "nvext.prompt_token_ids: the ids differ"),
        (
            changed(SGLANG_CHAT_META_INFO, "choices", 0, "meta_info", "output_token_logprobs", to=[[-0.5]]),
            "meta_info.output_token_logprobs: expected a list of log probs",
        ),
        (
            changed(DYNAMO_CHAT_ENGINE_DATA, "nvext", "engine_data", "completion_logprobs", to=[-0.5]),
            "1 log probs for 2 sampled tokens",
        ),
    ],
)
def test_other_engines_forms_that_do_not_agree_are_refused(reply: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidReply, match=fault):
        read_tokens(reply)
