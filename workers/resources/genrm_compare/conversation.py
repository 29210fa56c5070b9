"""The conversation as the reward model is shown it: roles and texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymq.responses import content_texts, is_message


def shown(given: str | Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the messages of a request's `input`.

    Texts in parts are joined; items that are not messages are left out.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [
        {"role": item["role"], "content": "".join(content_texts(item.get("content")))}
        for item in given
        if is_message(item)
    ]
