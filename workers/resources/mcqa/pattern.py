"""A row's own pattern for the answer. It runs in a process that can be killed."""

from __future__ import annotations

import re

from gymq.text.choices import FOREIGN_LETTERS, Choices


def letter_by_pattern(pattern: str, reply: str, choices: Choices) -> str | None:
    """Return the letter that the first group of the pattern's last match holds, or whose option's text it holds.

    A single letter is the answer whether or not it can be chosen. An invalid pattern finds nothing.
    """
    try:
        matches = list(re.finditer(pattern, reply, re.IGNORECASE))
    except (re.error, OverflowError, RecursionError):
        return None
    if not matches:
        return None
    last = matches[-1]
    answer = ((last[1] if last.re.groups else last[0]) or "").strip()
    letter = answer.translate(FOREIGN_LETTERS).strip().upper()
    if len(letter) == 1 and letter.isalpha():
        return letter
    return choices.letter_of_text(answer)
