"""From a record to the form of each trainer, with plain lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.data.records import Record
from gymq.responses.tokens import ROUTED_EXPERTS


def to_nemo_rl(record: Record) -> dict[str, Any]:
    """Return a message log of alternating user and assistant entries, the latter with log probs.

    Its first entry is the prompt. Entries have the experts of their tokens, as arrays, if the model is one of experts.

    Raises:
        NotTrainable: the experts do not fit the tokens.
    """
    log = list(_entries(record))
    converted = {"message_log": log, "input_message_log": log[:1], "reward": record.reward, "mask_sample": record.mask}
    return converted | {"reward_components": record.reward_components}


def _entries(record: Record) -> Iterator[dict[str, Any]]:
    experts = record.experts()
    for span in record.spans:
        entry: dict[str, Any] = {"role": "user", "content": "", "token_ids": record.token_ids[span.start : span.end]}
        if span.kind == "generation":
            entry |= {"role": "assistant", "generation_logprobs": record.log_probs[span.start : span.end]}
        if experts is not None:
            entry[ROUTED_EXPERTS] = experts[span.start : span.end]
        yield entry


def to_verl(record: Record) -> dict[str, Any]:
    """Return the fields of verl's output of an agent loop.

    Raises:
        NotTrainable: the experts do not fit the tokens.
    """
    return {
        "prompt_ids": record.prompt_ids,
        "response_ids": record.behind_prompt(record.token_ids),
        "response_mask": record.behind_prompt(record.is_sampled()),
        "response_logprobs": record.behind_prompt(record.log_probs),
        "reward_score": record.reward,
        "num_turns": record.num_turns,
        "metrics": {},
        "extra_fields": {"mask_sample": record.mask, "reward_components": record.reward_components},
        ROUTED_EXPERTS: record.experts(),
    }


def to_trl(record: Record) -> dict[str, Any]:
    """Return the fields that a rollout function of TRL returns for one sample."""
    return {
        "prompt_ids": record.prompt_ids,
        "completion_ids": record.behind_prompt(record.token_ids),
        "env_mask": record.behind_prompt(record.is_sampled()),
        "logprobs": record.behind_prompt(record.log_probs),
        "env_reward": record.reward,
        "num_turns": record.num_turns,
    }


def to_openrlhf(record: Record, *, prompt: str = "", label: str = "") -> dict[str, Any]:
    """Return the fields that an executor of OpenRLHF returns.

    Args:
        prompt: text of the prompt, which is passed through.
        label: text of the expected answer, which is passed through.
    """
    return {
        "prompt": prompt,
        "label": label,
        "observation_tokens": record.token_ids,
        "action_ranges": [(span.start, span.end) for span in record.generations],
        "rollout_log_probs": record.log_probs,
        "reward": record.reward,
        "scores": record.reward,
        "extra_logs": dict(record.reward_components),
        "truncated": record.finish is not None,
    }
