"""Think blocks in the text of a model, found in one pass; a block that is never closed does not count."""

from __future__ import annotations

_OPENING, _CLOSING = "<think>", "</think>"


def split_think_blocks(text: str) -> tuple[list[str], str]:
    """Return the contents of all think blocks, and the text without them."""
    reasoning, rest, end = [], [], 0
    while (opening := text.find(_OPENING, end)) >= 0:
        closing = text.find(_CLOSING, opening + len(_OPENING))
        if closing < 0:
            break
        rest.append(text[end:opening])
        reasoning.append(text[opening + len(_OPENING) : closing])
        end = closing + len(_CLOSING)
    return reasoning, "".join([*rest, text[end:]])
