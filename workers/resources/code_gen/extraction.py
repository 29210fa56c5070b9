"""Reading a program out of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.responses import output_text

_FENCE = "```"
_TAGS = ("<think>", "</think>")


def extract_code(text: str) -> str:
    """The lines between the last two lines that hold a fence; empty if there are no two such lines."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE in line]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def misuses_think_tags(response: Mapping[str, Any]) -> bool:
    """Whether a think tag stands in the text, or more than once in the summaries of the reasoning."""
    text = output_text(response)
    summaries = "".join(
        part.get("text") or ""
        for item in response["output"]
        if item.get("type") == "reasoning"
        for part in item.get("summary") or []
    )
    return any(tag in text or summaries.count(tag) > 1 for tag in _TAGS)
