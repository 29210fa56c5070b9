"""Reading the missing part out of a reply, and cutting off what repeats the text around it."""

from __future__ import annotations

from gymq.workers.resources.evalplus.blocks import last_python_block

_END_OF_THOUGHTS = "</think>"


def extract_code(text: str) -> str | None:
    """Return the last block of Python in a reply as it is, since its indentation counts; None if there is none."""
    text = text.replace("\r", "")
    _, end, answer = text.partition(_END_OF_THOUGHTS)
    return last_python_block(answer if end else text)


def completion_of(code: str, prefix: str, suffix: str) -> str:
    """Return the code without its first line feed, the end of the prefix and the beginning of the suffix."""
    completion = code.removeprefix("\n")
    completion = completion[_overlap(prefix, completion) :]
    return completion[: len(completion) - _overlap(completion, suffix)]


def _overlap(text: str, following: str) -> int:
    """Return the length of the longest end of a text with which another begins. Blanks without a line feed are none."""
    for length in range(min(len(text), len(following)), 0, -1):
        common = following[:length]
        if text.endswith(common) and (not common.isspace() or "\n" in common):
            return length
    return 0
