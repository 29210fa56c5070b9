"""What an engine says of a prompt: its ids, and the log probs of its tokens."""

from __future__ import annotations

from typing import Any

from gymq.workers.models.vllm_model.asked import Asked
from gymq.workers.models.vllm_model.prepare import tokenize_body
from gymq.workers.models.vllm_model.sampled_tokens import read_tokenized

from gymq.responses import InvalidReply


async def prompt_ids(asked: Asked, sent: dict[str, Any]) -> list[int]:
    """Return the ids of the prompt of a body that was sent."""
    prompt = sent.get("prompt")
    return prompt if isinstance(prompt, list) else read_tokenized(await asked.tokenize(tokenize_body(sent)))


async def read_prompt(
    asked: Asked, model: str, prompt: list[int] | dict[str, Any], num_log_probs: int
) -> dict[str, Any]:
    """Return the answer of `gymq.Model.read_prompt`.

    Raises:
        InvalidReply: the engine does not say it.
    """
    if isinstance(prompt, dict):
        chat = {"model": model, "add_generation_prompt": True, **prompt}
        return {"token_ids": read_tokenized(await asked.tokenize(chat))}
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": num_log_probs}
    completion = await asked.post("/completions", body)
    try:
        entries = completion["choices"][0]["prompt_logprobs"]
        log_probs = [{token: float(entry["logprob"]) for token, entry in (of or {}).items()} for of in entries]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise InvalidReply("choices[0].prompt_logprobs", "the engine gives no log probs of prompts") from None
    return {"log_probs": log_probs}
