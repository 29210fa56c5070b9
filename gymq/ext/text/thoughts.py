"""What a model thinks before it answers."""

from __future__ import annotations

_BEGIN, _END = "<think>", "</think>"


def thoughts(text: str) -> str | None:
    """Return the content of the first `<think>...</think>` of a text, trimmed; None if there is none."""
    start = text.find(_BEGIN)
    stop = text.find(_END, start)
    return None if start < 0 or stop < 0 else text[start + len(_BEGIN) : stop].strip()
