"""Finding the boxed answer of a response, and comparing it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymq.text import boxes, conclusion

TOLERANCE = 1e-6  # relative for numbers above one, absolute below

_TEXT = re.compile(r"\\text\{(.*)\}", re.DOTALL)


def find_answer(output: Sequence[Mapping[str, Any]], last_box: Callable[[str], str | None]) -> str | None:
    """Return the last box of the last message that has one; otherwise of the last tool output that printed one."""
    for item in reversed(output):
        if item.get("type") == "message" and item.get("role") == "assistant":
            answer = (last_box(_message_text(item)) or "").strip()
            if answer:
                return answer
    for item in reversed(output):
        if item.get("type") == "function_call_output":
            answer = (last_box(_printed(item.get("output"))) or "").strip()
            if answer:
                return answer
    return None


def last_box(reply: str) -> str | None:
    """Return what stands in the last box that ends, behind thoughts; None without one."""
    found = boxes(conclusion(reply))
    return found[-1].text if found else None


def published_same_answer(answer: str, expected: str) -> bool:
    """Equal after light normalisation, or equal as numbers within the tolerance."""
    ours, theirs = normalised(answer), normalised(expected)
    if ours == theirs:
        return True
    try:
        actual, wanted = float(ours), float(theirs)
    except ValueError:
        return False
    return abs(actual - wanted) < TOLERANCE * max(1.0, abs(wanted))


def normalised(text: str) -> str:
    """Without delimiters of formulas and `\\text{}` around it, and with single blanks."""
    text = text.strip()
    if text.startswith("\\(") and text.endswith("\\)"):
        text = text[2:-2].strip()
    if len(text) > 1 and text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    inner = _TEXT.fullmatch(text)
    if inner:
        text = inner[1]
    return " ".join(text.split())


def _message_text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or [] if part.get("type") == "output_text")


def _printed(output: Any) -> str:
    """Return the printed text of a tool, if its output has it separately; otherwise all of the output."""
    if not isinstance(output, str):
        return ""
    try:
        parsed = json.loads(output)
    except (ValueError, RecursionError):
        return output
    if not isinstance(parsed, dict):
        return output
    stdout = parsed.get("stdout")
    return stdout if isinstance(stdout, str) else ""
