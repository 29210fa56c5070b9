"""Items of the Responses API that conversions read and make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gymq.responses.items import Item, new_id

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""The JSON schema of the arguments of a function that takes none."""


def reasoning_item(texts: Iterable[str], encrypted_content: str = "") -> Item:
    """Return a reasoning item with a new id; its summary consists of the texts."""
    summary = [{"type": "summary_text", "text": text} for text in texts]
    item: Item = {"type": "reasoning", "id": new_id("rs"), "summary": summary}
    return {**item, "encrypted_content": encrypted_content} if encrypted_content else item


def function_tool(name: Any, parameters: Any, *, strict: Any, description: Any = None) -> Item:
    """Return the entry of `tools` for a function; without `parameters` it takes none."""
    tool = {"type": "function", "name": name, "parameters": parameters or NO_PARAMETERS, "strict": strict}
    return tool if description is None else {**tool, "description": description}


def reasoning_texts(item: Mapping[str, Any]) -> list[str]:
    """Return the texts of a reasoning item: its summary, or else its content."""
    return [entry["text"] for entry in item["summary"] or item.get("content") or ()]
