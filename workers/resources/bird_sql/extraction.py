"""The SQL query in a reply. Each step takes time in proportion to the text."""

from __future__ import annotations

import re

_OPENING, _FENCE = "```sql", "```"
_LETTER = re.compile(r"[a-zA-Z]")
_BLANKS = re.compile(r"\s+")
_BOLD = "**"


def extract_query(text: str) -> str | None:
    """Return the query of the last block with the tag `sql`, in one line and without comments; None without a block.

    Two dashes begin a comment that goes on to the end of the text, wherever they stand.
    """
    block = _last_block(text)
    if block is None:
        return None
    query = _BLANKS.sub(" ", _without_comments(block))
    if query.startswith(_BOLD) and (end := query.rfind(_BOLD)) >= len(_BOLD):
        query = query[end + len(_BOLD) :]
    return query.strip()


def _last_block(text: str) -> str | None:
    """Return the last text between an opening fence and the next fence behind its first letter."""
    found, position = None, 0
    while (start := text.find(_OPENING, position)) >= 0:
        start += len(_OPENING)
        letter = _LETTER.search(text, start)
        end = -1 if letter is None else text.find(_FENCE, letter.end())
        if end < 0:
            break
        found, position = text[start:end], end + len(_FENCE)
    return found


def _without_comments(block: str) -> str:
    kept, position = [], 0
    while (start := block.find("/*", position)) >= 0 and (end := block.find("*/", start + 2)) >= 0:
        if block.find("--", position, start + 1) >= 0:
            break
        kept.append(block[position:start])
        position = end + 2
    rest, _, _ = block[position:].partition("--")
    return "".join([*kept, rest])
