"""How NeMo Gym reads the chosen letter, one function for each grading mode, in linear time."""

from __future__ import annotations

import re
from itertools import pairwise

from gymq.ext.text.choices import FOREIGN_LETTERS, Choices, normalised
from gymq.ext.text.marks import trimmed

BOX = "\\boxed{"
TEXT = "\\text{"

_BRACE = re.compile(r"[{}]")

# The answer may also stand in the line below.
_ANSWER = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
_MARKDOWN_ANSWER = re.compile(r"answer[*_]{0,2}\s*+:[*_\s]{0,2}([^\n]+)", re.IGNORECASE)
_LABEL = re.compile(r"([A-Z])\s*[:).-]")
_FIRST_LETTER = re.compile(r"([A-Za-z])(?![A-Za-z0-9])")
_CAPITAL = re.compile(r"\b[A-Z]\b")
_LONE_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_BETWEEN_CHOICES = re.compile(r"\s*[/|&,;]\s*|\s+(?:or|and)\s+|\s+", re.IGNORECASE)


def strict_boxed_letter(reply: str, choices: Choices) -> str | None:
    """Return the one letter in the last box, or the letter that labels what is in it: `C`, `(C).`, `C: Ribosome`."""
    content = last_box(reply)
    return None if content is None else _letter_in_box(content, choices)


def boxed_letter(reply: str, choices: Choices) -> str | None:
    """As `strict_boxed_letter`, or else the only option whose text is in the last box."""
    content = last_box(reply)
    if content is None:
        return None
    letter = _letter_in_box(content, choices)
    if letter is not None:
        return letter
    found = choices.letters_within(normalised(content), normalised(without_text_wrappers(content)))
    return found.pop() if len(found) == 1 else None


def answer_colon_letter(reply: str, choices: Choices) -> str | None:
    """Return the letter, or the option's text, that follows the first `Answer:`, up to the end of the line."""
    match = _ANSWER.search(reply)
    if match is None:
        return None
    answer = without_text_wrappers(match[1])
    return (choices.letter(answer) if len(answer) == 1 else None) or choices.letter_of_text(answer)


def markdown_letter(reply: str, choices: Choices) -> str | None:
    """Return the letter that follows the last `Answer:` which is followed by one; `**Answer:**` counts."""
    for match in reversed(list(_MARKDOWN_ANSWER.finditer(reply))):
        letter = _letter_in_line(match[1], choices)
        if letter is not None:
            return letter
    return None


def last_box(reply: str) -> str | None:
    """Return the content of the last `\\boxed{`; None if there is no box or the last one never closes."""
    start = reply.rfind(BOX)
    content = start + len(BOX)
    end = closing_braces(reply).get(content - 1)
    return None if start < 0 or end is None else reply[content:end]


def closing_braces(text: str) -> dict[int, int]:
    """Return for each opening brace that closes where it does, escaped ones too."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closed[opened.pop()] = brace.start()
    return closed


def without_text_wrappers(content: str) -> str:
    """Return the content, trimmed, without the `\\text{` at its beginning and the brace at its end, however often.

    Whether the brace belongs to the wrapper is not looked at: `\\text{a} and \\text{b}` becomes `a} and \\text{b`.
    """
    start, end = trimmed(content, 0, len(content))
    while end - start > len(TEXT) and content.startswith(TEXT, start) and content[end - 1] == "}":
        start, end = trimmed(content, start + len(TEXT), end - 1)
    return content[start:end]


def _letter_in_box(content: str, choices: Choices) -> str | None:
    content = without_text_wrappers(content)
    letters = re.findall(r"[A-Za-z]", content)
    if len(letters) == 1:
        return letters[0] if letters[0] in choices.texts else None
    label = _LABEL.match(content)
    return label[1] if label and label[1] in choices.texts else None


def _letter_in_line(line: str, choices: Choices) -> str | None:
    line = line.translate(FOREIGN_LETTERS).strip().strip("*_` \t\n\r.,;:")
    if _is_list_of_choices(line, choices):
        return None
    if len(line) == 1:
        return choices.letter(line)
    first_letter = _FIRST_LETTER.match(line)
    if first_letter:
        return choices.letter(first_letter[1])
    capitals = _CAPITAL.findall(line)
    return choices.letter(capitals[-1]) if capitals else None


def _is_list_of_choices(line: str, choices: Choices) -> bool:
    """Return whether two different letters that can be chosen stand next to each other: `A or B`, `A, B`."""
    letters = [found for found in _LONE_LETTER.finditer(line) if choices.letter(found[0])]
    return any(
        one[0].upper() != other[0].upper() and _BETWEEN_CHOICES.fullmatch(line, one.end(), other.start())
        for one, other in pairwise(letters)
    )


READERS = {
    "strict_single_letter_boxed": strict_boxed_letter,
    "lenient_boxed": boxed_letter,
    "lenient_answer_colon": answer_colon_letter,
    "lenient_answer_colon_md": markdown_letter,
}
