"""The body of a chat completion, most of which is log probs: an object for each token, and four numbers in it.

As a `LogProb` each takes a sixth of the time of a dict, and nothing that garbage collections look at.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET


class LogProb(msgspec.Struct, gc=False):
    """What is read of one sampled token."""

    token: str
    logprob: float


class LogProbs(msgspec.Struct):
    """The log probs of a choice."""

    content: list[LogProb] | None = None


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    index: Any = UNSET
    logprobs: LogProbs | None = None
    finish_reason: Any = UNSET
    stop_reason: Any = UNSET
    matched_stop: Any = UNSET  # as SGLang calls it
    token_ids: Any = UNSET
    response_token_ids: Any = UNSET
    prompt_token_ids: Any = UNSET
    meta_info: Any = UNSET
    routed_experts: Any = UNSET


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    id: Any = UNSET
    object: Any = UNSET
    created: Any = UNSET
    model: Any = UNSET
    usage: Any = UNSET
    error: Any = UNSET
    service_tier: Any = UNSET
    system_fingerprint: Any = UNSET
    prompt_token_ids: Any = UNSET
    kv_transfer_params: Any = UNSET
    nvext: Any = UNSET
    sglext: Any = UNSET
    metadata: Any = UNSET


_decode = msgspec.json.Decoder(_Completion).decode


def decode_completion(body: bytes) -> dict[str, Any]:
    """Return a chat completion with its log probs as `LogProbs`, without fields that no known engine has.

    Raises:
        msgspec.ValidationError: it has another form.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not JSON.
    """
    completion = _decode(body)
    return {**_given(completion), "choices": [_given(choice) for choice in completion.choices]}


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not UNSET}
