"""The letter that a reply chooses in a `<solution>` tag."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set

_STRICT = re.compile(r"<solution>\s*\[?([A-Za-z])\]?\s*</solution>")
_OPENING = re.compile("<solution>", re.IGNORECASE)
_CLOSING = re.compile("</solution>", re.IGNORECASE)


def strict_choice(text: str, allowed: Set[str]) -> str | None:
    """The first tag with nothing in it but a letter, alone or in brackets; None if that letter is not allowed."""
    found = _STRICT.search(text)
    return _if_allowed(found[1], allowed) if found else None


def lenient_choice(text: str, allowed: Set[str]) -> str | None:
    """The first letter in the last tag that stands alone; None if it is not allowed."""
    content = ""
    for content in _tags(text):  # noqa: B007 (the last one counts)
        pass
    for position, character in enumerate(content):
        neighbours = content[max(position - 1, 0) : position] + content[position + 1 : position + 2]
        if character.isalpha() and not any(neighbour.isalpha() for neighbour in neighbours):
            return _if_allowed(character, allowed)
    return None


READERS: dict[str, Callable[[str, Set[str]], str | None]] = {"strict": strict_choice, "lenient": lenient_choice}


def _tags(text: str) -> Iterator[str]:
    """Return the content of each pair of tags, from left to right."""
    end = 0
    while (opening := _OPENING.search(text, end)) and (closing := _CLOSING.search(text, opening.end())):
        yield text[opening.end() : closing.start()]
        end = closing.end()


def _if_allowed(letter: str, allowed: Set[str]) -> str | None:
    return letter.upper() if letter.upper() in allowed else None
