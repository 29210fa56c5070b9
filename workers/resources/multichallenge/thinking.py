"""Cutting a model's thinking out of what it says."""

from __future__ import annotations

_TAGS = ("think", "thinking")


def without_thinking(text: str) -> str:
    """The text without `<think>...</think>` and `<thinking>...</thinking>`, trimmed.

    A closing tag without an opening one ends thinking that began before the text. An opening tag that is never closed
    stays, and all that follows it.
    """
    for tag in _TAGS:
        text = _without_pairs(text, f"<{tag}>", f"</{tag}>")
    for tag in _TAGS:
        before, found, after = text.partition(f"</{tag}>")
        text = after if found else before
    return text.strip()


def _without_pairs(text: str, opening: str, closing: str) -> str:
    kept = []
    position = 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[position:start])
        position = end + len(closing)
    return "".join(kept) + text[position:]
