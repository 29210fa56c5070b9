"""Reading the answer out of a reply."""

from __future__ import annotations

import re
from typing import Any

OPENING, CLOSING = "<answer>", "</answer>"
BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
BLANKS = re.compile(r"\s*")
LETTER = re.compile(r"Answer[ \t]*:[ \t]*([A-Za-z])[ \t]*$", re.MULTILINE)


def read_answer(text: str, choices: dict[str, Any] | None) -> str | None:
    """The answer in tags, or else in a box, or else a letter at the end of a line; None if there is none.

    Args:
        choices: what the letters stand for; a letter that is none of them is an answer itself.
    """
    text = text.replace("<|answer_start|>", OPENING).replace("<|answer_end|>", CLOSING)
    answer = _tagged(text)
    if answer is None:
        boxes = BOXED.findall(text)
        letters = [] if boxes else LETTER.findall(text)
        answer = str((boxes or letters or [""])[-1]).strip() or None
    chosen = choices.get(answer.upper()) if answer is not None and choices and len(answer) == 1 else None
    return chosen if isinstance(chosen, str) else answer


def _tagged(text: str) -> str | None:
    """What the last pair of tags holds; nothing if that is another opening tag."""
    found, position = None, 0
    while (opening := text.find(OPENING, position)) >= 0:
        blanks = BLANKS.match(text, opening + len(OPENING))
        assert blanks is not None  # it may be empty
        start = blanks.end()
        closing = text.find(CLOSING, start + 1)  # a pair holds one character at least
        if closing < 0:
            break
        found, position = text[start:closing].rstrip(), closing + len(CLOSING)
    return None if found is None or OPENING in found else found
