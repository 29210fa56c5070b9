"""The patch that an episode ends with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gymq import responses

_DIFF = re.compile(r"^diff --git .*?(?=^```|\Z)", re.DOTALL | re.MULTILINE)


def find_patch(response: Mapping[str, Any]) -> str:
    """Return the diff in the response's last message, from any role; empty if it has none.

    It begins with the first line `diff --git` and ends at a closing fence, or with the text. The loop of mini-swe-agent
    ends with the output of the command that submits, which it records as a user message.
    """
    messages = [item for item in response["output"] if responses.is_message(item)]
    if not messages:
        return ""
    content = messages[-1].get("content") or ""
    if not isinstance(content, str):
        content = "".join(text for part in content if isinstance(text := part.get("text"), str))
    found = _DIFF.search(content)
    return "" if found is None else found[0].rstrip("\n") + "\n"
