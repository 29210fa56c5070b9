"""The two ways to take the query out of a reply: as it is written, and shortened as NeMo Gym does."""

from __future__ import annotations

import re

from gymq.text import code_blocks, conclusion

_OPENING, _FENCE = "```sql", "```"
_LETTER = re.compile(r"[a-zA-Z]")
_BLANKS = re.compile(r"\s+")
_BOLD = "**"


def query_as_written(reply: str) -> str | None:
    """Return the last block with the tag `sql`; comments and texts in it are for the database to read."""
    blocks = code_blocks(conclusion(reply), "sql", "sqlite")
    return blocks[-1].text.strip() if blocks else None


def published_query(reply: str) -> str | None:
    """Return the query in one line, without comments, of which two dashes begin one wherever they stand."""
    block = _last_block(reply)
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
