"""Find out how an engine samples.

No reply says so. vLLM takes what a request leaves out from the checkpoint's `generation_config.json`, and states log
probs of the model's own distribution unless it is started with `--logprobs-mode processed_logprobs`. Both show in the
log probs of one token that is asked for at several settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gymq.workers.models.openai_model.overflow import ContextOverflow
from gymq.workers.models.openai_model.refusal import Refused
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.sampler import FROM_CHECKPOINT, Sampler

from gymq.protocol.sampling import PROCESSED, RAW
from gymq.responses.errors import warn_once

NUM_ALTERNATIVES = 5
"""Log probs of a token that are compared; engines allow at least so many."""

_HOT = 2.0
_NOISE = 0.1  # nats between two calculations of one log prob, in half precision

Post = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
LogProbs = dict[str, float]  # by token


async def examine(post: Post, options: VLLMOptions, engine: str) -> Sampler:
    """Return how an engine samples.

    Args:
        post: sends a body to a path of the engine.
        engine: its name in messages.

    Raises:
        RolloutError: there is no answer.
    """
    settings = options.form.neutral
    try:
        neutral = await _next_token(post, options, settings)
        hot = await _next_token(post, options, {**settings, "temperature": _HOT})
        by_default = await _next_token(post, options, {})
    except (Refused, ContextOverflow) as error:
        neutral, hot, by_default = {}, {}, {}
        reason = f": {error}"
    else:
        reason = ""
    if not neutral.keys() & hot.keys():
        warn_once(f"{engine} does not show what its log probs are of{reason}; `gymq check-policy` compares them")
        return Sampler(None, settings, FROM_CHECKPOINT)
    if not _differ(neutral, hot):
        return Sampler(RAW, settings, FROM_CHECKPOINT)
    return Sampler(PROCESSED, settings if _differ(neutral, by_default) else {}, FROM_CHECKPOINT)


async def _next_token(post: Post, options: VLLMOptions, settings: Mapping[str, Any]) -> LogProbs:
    """Return the log probs of the likeliest next tokens; empty if the reply has none."""
    body = {"model": options.model, "max_tokens": 1, **settings}
    if options.use_completions_api:
        answer = await post("/completions", {**body, "prompt": "Hi", "logprobs": NUM_ALTERNATIVES})
    else:
        asked = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": NUM_ALTERNATIVES}
        answer = await post("/chat/completions", {**body, **asked})
    try:
        log_probs = answer["choices"][0]["logprobs"]
        if options.use_completions_api:
            return {str(token): float(log_prob) for token, log_prob in log_probs["top_logprobs"][0].items()}
        return {entry["token"]: float(entry["logprob"]) for entry in log_probs["content"][0]["top_logprobs"]}
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}


def _differ(one: LogProbs, other: LogProbs) -> bool:
    return any(abs(one[token] - other[token]) > _NOISE for token in one.keys() & other.keys())
