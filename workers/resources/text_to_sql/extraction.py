"""The SQL query in a reply."""

from __future__ import annotations

import re

_TAGGED_BLOCK = re.compile(r"```sql(?!\w)(.*?)```", re.DOTALL | re.IGNORECASE)
_ANY_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s", re.IGNORECASE)
# In prose only what asks or changes data: "create" and "drop" are words of any explanation.
_BARE_STATEMENT = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s", re.IGNORECASE)


def find_query(reply: str) -> str | None:
    """The query a reply answers with; empty if its block is, None if there is none.

    It is what stands in the last block fenced with the tag `sql`; or else the last fenced block without a tag that
    begins like a statement; or else the text from the first keyword of a statement to the last semicolon after it, or
    to the end. A query found in that last way ends with one semicolon.
    """
    tagged: list[str] = _TAGGED_BLOCK.findall(reply)
    if tagged:
        return tagged[-1].strip()
    blocks: list[str] = [block.strip() for block in _ANY_BLOCK.findall(reply)]
    for block in reversed(blocks):
        if _STATEMENT.match(block):
            return block
    bare = _BARE_STATEMENT.search(reply)
    if bare is None:
        return None
    start, semicolon = bare.start(), reply.rfind(";")
    query = reply[start : semicolon + 1] if semicolon > start else reply[start:]
    return query.strip().rstrip(";") + ";"
