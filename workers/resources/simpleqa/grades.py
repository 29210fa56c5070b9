"""Reading an answer out of a response, and a grade out of the judge's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gymq import responses

VERDICTS = {"A": "correct", "B": "incorrect", "C": "not_attempted"}

_LETTER_FIRST = re.compile(r"[ABC](?!\w)")
_LETTER = re.compile(r"(?<!\w)[ABC](?!\w)")
_WORD = re.compile(r"(?<!\w)(?:NOT[_ ]ATTEMPTED|INCORRECT|CORRECT)(?!\w)")
_LETTER_OF_WORD = {"CORRECT": "A", "INCORRECT": "B", "NOT_ATTEMPTED": "C", "NOT ATTEMPTED": "C"}


def answer_text(response: Mapping[str, Any]) -> str:
    """Return the text parts of the last assistant message that has one, joined with newlines, trimmed; or nothing."""
    for item in reversed(response["output"]):
        if responses.is_message(item) and item.get("role") == "assistant":
            texts = _texts(item.get("content"))
            if texts:
                return "\n".join(texts).strip()
    return ""


def grade_in(text: str) -> str:
    """Return the grade A, B or C in a judge's trimmed text; C if there is none.

    A letter counts first at the beginning, then at the beginning of the last line, then anywhere: an A before a B
    before a C. Without any letter the words count, if all are for the same grade.
    """
    for line in (text, text.split("\n")[-1].strip()):
        if _LETTER_FIRST.match(line):
            return line[0]
    letters = _LETTER.findall(text)
    if letters:
        return str(min(letters))
    meant = {_LETTER_OF_WORD[word] for word in _WORD.findall(text)}
    return meant.pop() if len(meant) == 1 else "C"


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if isinstance(part.get("text"), str)]
