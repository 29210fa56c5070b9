"""Token ids and log probs are taken from whichever source there is, and refused where sources differ."""

from __future__ import annotations

from typing import Any

import pytest
from gymq.workers.models.vllm_model.sampled_tokens import read_tokenized, read_tokens

from gymq.responses import InvalidReply

BUNDLE = {"prompt_token_ids": [1, 2], "generation_token_ids": [11, 12], "generation_log_probs": [-0.5, -0.25]}
NAMED = {
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
        ({"logprobs": {"content": [{"token": "token_id:1"}]}}, "`token` and `logprob`"),
        ({"prompt": [1, 2], "logprobs": NAMED}, r"choices\[0\].token_ids: missing"),
        ({"token_ids": [11, 12], "logprobs": NAMED}, "prompt_token_ids: missing"),
        (INLINE, "log probs of the sampled tokens"),
        ({"prompt": [1, 2], "token_ids": [11], "logprobs": TEXTS}, "2 log probs for 1 sampled tokens"),
        ({"prompt": [1, 2], "token_ids": [11, 13], "logprobs": NAMED}, "the ids differ from prompt_token_ids"),
        ({"bundle": {"prompt_token_ids": [1]}}, "generation_token_ids: missing beside prompt_token_ids"),
        ({"bundle": differing("generation_log_probs", [-0.5])}, "1 log probs for 2 sampled tokens"),
        ({"bundle": differing("prompt_token_ids", [3]), **INLINE, "logprobs": NAMED}, "prompt_token_ids: differ"),
        ({"bundle": differing("generation_token_ids", [11, 13]), **INLINE, "logprobs": TEXTS}, "token_ids: differ"),
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
    message = {"role": "assistant", "content": "ab", **BUNDLE, "routed_experts": "opaque"}
    assert reply == {"choices": [{"index": 0, "message": message}]}


@pytest.mark.parametrize("answer", [{}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": 3}])
def test_a_tokenized_prompt_without_ids_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidReply, match="tokens"):
        read_tokenized(answer)
