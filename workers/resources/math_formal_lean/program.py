"""From a reply to the Lean program that is compiled."""

from __future__ import annotations

import re
from typing import Literal

from gymq.ext.text import code_blocks

Which = Literal["last", "first"]

_TAGS = ("lean4", "lean3", "lean")
_OPENING_FENCE = re.compile(r"```(?:lean4|lean3|lean)?")
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_THEOREM = re.compile(r"\s*(?:theorem|example)\b")
_BY = re.compile(r"\s*by(?:\s+|$)")


def find_code(reply: str, which: Which) -> str:
    """Return the code of a reply: a fenced block, or else the whole text without fences at its ends.

    A block keeps its indentation, which means something to Lean.
    """
    blocks = [block for block in code_blocks(reply) if block.is_closed]
    for tag in _TAGS:  # the first one with a block decides
        blocks = [block for block in blocks if block.tag.lower() == tag] or blocks
    if blocks:
        block = blocks[0 if which == "first" else -1]
        code = _trimmed(block.text if block.tag.lower() in _TAGS else f"{block.tag}{block.text}")
        if code:
            return code
    text = reply.strip()
    opening = _OPENING_FENCE.match(text)
    return text[opening.end() if opening else 0 :].removesuffix("```").strip()


def _trimmed(block: str) -> str:
    starts_beside_the_tag = bool(block.partition("\n")[0].strip())
    return block.strip() if starts_beside_the_tag else _BLANK_LINES.sub("", block).rstrip()


def find_proof(code: str) -> str:
    """Return the proof of the first theorem or example: what follows its first `:=`, without a leading `by`.

    Code without a theorem is taken for a proof as it is.
    """
    lines = code.splitlines()
    start = next((number for number, line in enumerate(lines) if _THEOREM.match(line)), len(lines))
    end = next((number for number in range(start, len(lines)) if ":=" in lines[number]), None)
    if end is None:
        return code
    before, _, after = lines[end].partition(":=")
    # Blanks in place of the statement leave the first tactic in its column.
    following = [" " * len(before + ":=") + after, *lines[end + 1 :]]
    begin = next((number for number, line in enumerate(following) if line.strip()), len(following))
    first, rest = "".join(following[begin : begin + 1]), following[begin + 1 :]
    by = _BY.match(first)
    if by is not None:
        first = _aligned(first[by.end() :], by.end(), rest)
        return "\n".join([first, *rest] if first else rest).rstrip()
    return "\n".join([first.strip(), *rest] if after.strip() else following[1:]).rstrip()


def _aligned(tactic: str, column: int, rest: list[str]) -> str:
    """Return the tactic behind a `by`, in the column of the tactics below it.

    Lines that are indented further than the tactic continue it and stay so.
    """
    below = next((line for line in rest if line.strip()), None)
    if not tactic or below is None:
        return tactic
    return " " * min(column, len(below) - len(below.lstrip())) + tactic


def build_program(reply: str, header: str, statement: str, which: Which, *, strip_theorem: bool) -> str:
    """Header, statement and proof as one program. The statement ends with `:= by` and a newline, or is empty."""
    code = find_code(reply, which)
    return header + statement + (find_proof(code) if strip_theorem else code)
