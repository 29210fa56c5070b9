"""Fenced blocks of code in a reply.

| accepted | refused |
| --- | --- |
| a tag right behind the fence, in any case, or alone on its line: `SQL`, ` sql` | a longer word: `sqlx` for `sql` |
| the next fence that begins a line closes a block that has lines of its own | a fence within a line of such a block |
| any next fence closes a block that begins within a line | |
| a fence with a tag at the beginning of a line closes a block, and opens the next one | |
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(
    r"(?P<indent>^[ \t]*+)?`{3,}+(?P<tag>[\w+-]++|[ \t]++[\w+-]++(?=[ \t]*$))?(?P<alone>[ \t]*$)?", re.MULTILINE
)


class Block(NamedTuple):
    """What stands between two fences.

    Attributes:
        tag: as it is written; empty without one.
        text: all that follows the tag, as it stands there.
        is_closed: whether a fence follows.
    """

    tag: str
    text: str
    is_closed: bool

    @property
    def lines(self) -> str:
        """Return the lines of the block, or what it holds within a line, trimmed."""
        _, line_end, rest = self.text.partition("\n")
        return rest.removesuffix("\n") if line_end else self.text.strip()


def code_blocks(reply: str, *tags: str) -> list[Block]:
    """Return the blocks that have one of the tags; without tags, all."""
    fences = list(_FENCE.finditer(reply))
    following = _next_at_line_start(fences)
    found, at = [], 0
    while at < len(fences):
        opening, until = fences[at], following[at + 1]
        has_lines = opening["alone"] is not None and until < len(fences) and not fences[until]["tag"]
        end = until if has_lines else at + 1
        is_closed = end < len(fences)
        text = reply[opening.end() : fences[end].start() if is_closed else len(reply)]
        found.append(Block((opening["tag"] or "").strip(), text, is_closed))
        at = end if end == until and is_closed and fences[end]["tag"] else end + 1
    return [block for block in found if not tags or block.tag.lower() in tags]


def _next_at_line_start(fences: list[re.Match[str]]) -> list[int]:
    """Return for each fence the first one from it on that begins a line; their number without any."""
    found = [len(fences)] * (len(fences) + 1)
    for at in reversed(range(len(fences))):
        found[at] = at if fences[at]["indent"] is not None else found[at + 1]
    return found
