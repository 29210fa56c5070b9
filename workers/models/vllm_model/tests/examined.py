"""The replies of a scripted engine that is asked how it samples."""

from __future__ import annotations

from typing import Any

LIKELY = {"a": -1.0, "b": -3.0}  # log probs of the next token at a temperature of 1


def is_examination(body: dict[str, Any]) -> bool:
    """Return whether a request is for log probs of alternatives, which no rollout asks for."""
    return bool(body.get("top_logprobs")) or body.get("logprobs") not in (None, True, False, 0)


def next_token(
    body: dict[str, Any], *, log_probs: str = "processed", default_temperature: float = 1.0
) -> dict[str, Any]:
    """Return the reply to such a request, in the dialect that it was asked in."""
    temperature = body.get("temperature", default_temperature) if log_probs == "processed" else 1.0
    likely = {token: log_prob / temperature for token, log_prob in LIKELY.items()}
    entries = [{"token": token, "logprob": log_prob} for token, log_prob in likely.items()]
    if "prompt" in body:
        choice: dict[str, Any] = {"index": 0, "text": "a", "logprobs": {"top_logprobs": [likely]}}
    else:
        content = [{**entries[0], "top_logprobs": entries}]
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "logprobs": {"content": content}}
    return {"id": "c", "created": 1, "model": body["model"], "choices": [choice]}
