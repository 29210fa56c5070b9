"""Read and make items of the Responses API, which are plain dicts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gymq.protocol.tokens import SAMPLING_FIELD, TOKEN_FIELDS, VERSIONS_FIELD
from gymq.responses.types import FunctionCall, FunctionCallOutput

Item = dict[str, Any]

NO_ARGUMENTS = "{}"
"""The arguments of a call that has none."""

_NOT_GENERATED = frozenset(
    {
        "function_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "custom_tool_call_output",
        "mcp_approval_response",
    }
)

# Fields that the model does not read when the item is sent back to it.
_NOT_READ = frozenset({"id", "status", *TOKEN_FIELDS, VERSIONS_FIELD, SAMPLING_FIELD})


def is_message(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a message, also in the short form `{role, content}`."""
    kind = item.get("type")
    return kind == "message" or (kind is None and "role" in item)


def new_id(prefix: str) -> str:
    """Return a random id in the form of the Responses API: `msg_` and 32 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(16)}"


def user_message(text: str) -> Item:
    """Return a user message item."""
    return {"type": "message", "role": "user", "content": text}


def function_call(name: str, arguments: Mapping[str, Any] | str, call_id: str) -> FunctionCall:
    """Return the item of a call; its arguments are given as an object or as JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def function_call_output(call_id: str, output: str) -> FunctionCallOutput:
    """Return the item that answers the function call `call_id`."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def function_calls(response: Mapping[str, Any]) -> list[FunctionCall]:
    """Return the function calls of a response, in order. `arguments` is JSON text as the model wrote it."""
    return [item for item in response["output"] if item.get("type") == "function_call"]


def output_text(response: Mapping[str, Any]) -> str:
    """Return all text: every `output_text` part of every message of any role, joined with nothing, not trimmed."""
    return "".join(
        text
        for item in response["output"]
        if is_message(item)
        for text in content_texts(item.get("content"), only_type="output_text")
    )


def assistant_text(response: Mapping[str, Any]) -> str:
    """Return the text parts of all assistant messages, joined with newlines, trimmed."""
    return "\n".join(
        text for item in _assistant_messages(response) for text in content_texts(item.get("content"))
    ).strip()


def last_assistant_text(response: Mapping[str, Any]) -> str:
    """Return the text parts of the last assistant message, joined with newlines, trimmed; empty if there is none."""
    messages = _assistant_messages(response)
    return content_text(messages[-1].get("content")).strip() if messages else ""


def first_text_of_last_item(response: Mapping[str, Any]) -> str:
    """Return the first text of the last output item; empty if it is not a message, or starts with a refusal."""
    output = response["output"]
    if not output or not is_message(output[-1]):
        return ""
    content = output[-1].get("content")
    if isinstance(content, str):
        return content
    return (content[0].get("text") or "") if content else ""


def conclusion(text: str) -> str:
    """Return what follows the thoughts of a text; nothing if it ends within them, as one that was cut off does."""
    _, end, after = text.rpartition("</think>")
    return after if end or not text.lstrip().startswith("<think>") else ""


def is_generated(item: Mapping[str, Any]) -> bool:
    """Return whether a model generated an item: an assistant's message, a call, or reasoning."""
    return item.get("role") == "assistant" if is_message(item) else item.get("type") not in _NOT_GENERATED


def incomplete_reason(response: Mapping[str, Any]) -> str | None:
    """Return why an engine cut a response short, such as `max_output_tokens`; None if it did not."""
    details = response.get("incomplete_details")
    return details.get("reason") if isinstance(details, dict) else None


def is_truncated(response: Mapping[str, Any]) -> bool:
    """Return whether a response ended because it reached the limit of output tokens."""
    return incomplete_reason(response) == "max_output_tokens"


def overflowed(response: Mapping[str, Any]) -> bool:
    """Return whether the conversation no longer fits into the model's context: a reply cut before its first token."""
    generated = (response.get("usage") or {}).get("output_tokens")
    if not is_truncated(response) or generated:
        return False
    return all(map(is_message, response["output"])) and not output_text(response)


def asks_the_same(one: Item, other: Item) -> bool:
    """Return whether two items read the same to a model: text is equal to a list with that text as its only part."""
    return one == other or _read_of(one) == _read_of(other)


def _read_of(item: Item) -> Item:
    asked = {name: value for name, value in item.items() if name not in _NOT_READ}
    match asked.get("content"):
        case [{"text": str(text)}]:
            asked["content"] = text
    return asked


def split_at_first_generated(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Split a conversation into the prompt and everything from the first generated item on."""
    for index, item in enumerate(items):
        if is_generated(item):
            return list(items[:index]), list(items[index:])
    return list(items), []


def _assistant_messages(response: Mapping[str, Any]) -> list[Item]:
    return [item for item in response["output"] if is_message(item) and item.get("role") == "assistant"]


def content_texts(content: object, only_type: str | None = None) -> Iterator[str]:
    """Yield the texts of a message's content. A string is one text; refusals have none."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and only_type in (None, part.get("type")):
                yield text


def content_text(content: object) -> str:
    """Return the texts of a message's content, joined with newlines. Images, files and refusals have none."""
    return "\n".join(content_texts(content))


def user_contents(params: Mapping[str, Any]) -> list[Any]:
    """Return the contents of a request's user messages, in order. A plain-text `input` is one message."""
    given = params["input"]
    if isinstance(given, str):
        return [given]
    return [item.get("content") for item in given if is_message(item) and item.get("role") == "user"]
