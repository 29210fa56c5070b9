"""Finding the calendar in a reply: a JSON list of objects somewhere in a text, in time proportional to its length.

A list is a `[`, then anything but square brackets, then `]`. A brace group, from an opening brace to the next closing
one, may hold square brackets, but there has to be one that holds none.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BRACKET = re.compile(r"[\[\]{}]")

# Which brace of the group without brackets has been seen, in the order in which a list needs them.
_NOTHING, _OPENED, _CLOSED = range(3)
_NEEDED = {_NOTHING: "{", _OPENED: "}"}


def find_event_list(text: str) -> list[Any] | None:
    """The first list of objects in the text; None if there is none, or it is no JSON."""
    stretch = _first_list(text)
    try:
        return None if stretch is None else json.loads(stretch)
    except (ValueError, RecursionError):
        return None


def _first_list(text: str) -> str | None:
    """The first stretch that has the form of a list of objects.

    A `{` can be read in three ways: as a plain character, as the start of a brace group, or as the start of the group
    that the list needs. They are tried in this order, as a backtracking regular expression would, but a state that once
    led nowhere is never tried again, from no start.
    """
    brackets = list(_BRACKET.finditer(text))
    after_group = _places_after_groups(brackets)
    failed: set[tuple[int, int]] = set()
    for place, bracket in enumerate(brackets):
        if bracket[0] == "[":
            end = _end_of_list(brackets, after_group, place + 1, failed)
            if end is not None:
                return text[bracket.start() : end]
    return None


def _end_of_list(
    brackets: list[re.Match[str]], after_group: list[int | None], first: int, failed: set[tuple[int, int]]
) -> int | None:
    pending = [(first, _NOTHING)]
    while pending:
        state = place, seen = pending.pop()
        if state in failed or place == len(brackets):
            continue
        failed.add(state)
        bracket = brackets[place][0]
        if bracket == "]" and seen == _CLOSED:
            return brackets[place].end()
        if bracket in "[]":
            continue
        # The last one appended is tried first.
        if bracket == _NEEDED.get(seen):
            pending.append((place + 1, seen + 1))
        group_end = after_group[place]
        if group_end is not None and seen != _OPENED:  # no brackets are skipped inside the group that the list needs
            pending.append((group_end, seen))
        pending.append((place + 1, seen))
    return None


def _places_after_groups(brackets: list[re.Match[str]]) -> list[int | None]:
    """For each opening brace the place after the next closing one, if there is one."""
    places: list[int | None] = [None] * len(brackets)
    after: int | None = None
    for place in range(len(brackets) - 1, -1, -1):
        if brackets[place][0] == "}":
            after = place + 1
        elif brackets[place][0] == "{":
            places[place] = after
    return places
