"""Base models behind `/v1/completions`: a chat request as one prompt, what continues it as a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.protocol.tokens import VERSIONS_FIELD
from gymq.responses import InvalidReply, InvalidRequest, Item

Prompt = str | list[int]  # text, or the ids of its tokens

# Fields of a chat body that `/completions` does not have, or has in another form.
_CHAT_ONLY = frozenset(
    {
        "chat_template",
        "chat_template_kwargs",
        "logprobs",
        "max_completion_tokens",
        "messages",
        "metadata",
        "parallel_tool_calls",
        "reasoning_effort",
        "service_tier",
        "store",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
_BETWEEN_MESSAGES = "\n"


def plain_prompt(body: Mapping[str, Any]) -> str:
    """Return the texts of all messages, one after the other, as a base model without a chat template reads them.

    Raises:
        InvalidRequest: the request holds what plain text cannot say.
    """
    if body.get("tools"):
        raise InvalidRequest("tools", "a base model without a chat template cannot be offered tools")
    texts = []
    for index, message in enumerate(body["messages"]):
        content = message.get("content") or ""
        if message.get("tool_calls") or message["role"] == "tool":
            raise InvalidRequest(f"messages[{index}]", "calls of tools cannot be said without a chat template")
        if not isinstance(content, str):
            other = next((part["type"] for part in content if part["type"] != "text"), None)
            if other is not None:
                raise InvalidRequest(f"messages[{index}].content", f"a plain prompt has no place for {other}")
            content = "".join(part["text"] for part in content)
        texts.append(content)
    return _BETWEEN_MESSAGES.join(texts)


def completions_body(body: Mapping[str, Any], prompt: Prompt, num_log_probs: int | None) -> dict[str, Any]:
    """Return the body for `/completions` that matches a chat body, with a prompt instead of messages.

    Args:
        num_log_probs: alternatives to each sampled token; None: no log probs.
    """
    asked = {name: value for name, value in body.items() if name not in _CHAT_ONLY}
    asked["prompt"] = prompt
    if "max_completion_tokens" in body:
        asked.setdefault("max_tokens", body["max_completion_tokens"])
    if num_log_probs is not None:
        asked["logprobs"] = num_log_probs
    return asked


def as_chat_completion(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a completion of a text as a chat completion; ids and log probs stand where chat has them.

    Raises:
        InvalidReply: with the path of the first field that does not fit.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise InvalidReply("choices", "expected a list with one choice")
    return {**answer, "object": "chat.completion", "choices": [_choice(*pair) for pair in enumerate(choices)]}


def _choice(index: int, choice: Any) -> Item:
    if not isinstance(choice, dict) or not isinstance(choice.get("text"), str):
        raise InvalidReply(f"choices[{index}].text", "expected text")
    changed = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    changed["message"] = {"role": "assistant", "content": choice["text"]}
    if VERSIONS_FIELD in changed:
        changed["message"][VERSIONS_FIELD] = changed.pop(VERSIONS_FIELD)
    logprobs = choice.get("logprobs")
    if logprobs is not None:
        try:
            pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
            entries = [{"token": token, "logprob": log_prob} for token, log_prob in pairs]
        except (LookupError, TypeError, ValueError):
            reason = "expected `tokens` and `token_logprobs`, lists of one length"
            raise InvalidReply(f"choices[{index}].logprobs", reason) from None
        changed["logprobs"] = {"content": entries}
    return changed
