"""Think blocks in the text of a model, found in one pass: a block that is opened and never closed is none."""

from __future__ import annotations

_OPENING, _CLOSING = "<think>", "</think>"


def split_thoughts(text: str) -> tuple[list[str], str]:
    """Return the contents of all think blocks, and the text without them."""
    thoughts, rest, end = [], [], 0
    while (opening := text.find(_OPENING, end)) >= 0:
        closing = text.find(_CLOSING, opening + len(_OPENING))
        if closing < 0:
            break
        rest.append(text[end:opening])
        thoughts.append(text[opening + len(_OPENING) : closing])
        end = closing + len(_CLOSING)
    return thoughts, "".join([*rest, text[end:]])
