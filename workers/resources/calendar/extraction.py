"""Finding the calendar in a reply: a JSON list of objects somewhere in a text, in time proportional to its length.

A list is a `[`, then anything but square brackets, then `]`. A brace group, from an opening brace to the next closing
one, may hold square brackets, but there has to be one that holds none.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_BRACKET = re.compile(r"[\[\]{}]")


def find_event_list(text: str) -> list[Any] | None:
    """Return the first list of objects in the text; None if there is none, or it is not JSON."""
    stretch = _first_list(text)
    try:
        return None if stretch is None else json.loads(stretch)
    except (ValueError, RecursionError):
        return None


def _first_list(text: str) -> str | None:
    """Return the first stretch that has the form of a list of objects.

    It goes from the end of the text to its beginning and notes for each bracket where a list ends that continues there.
    A `{` can be read in three ways: as a plain character, as the start of a brace group, or as the start of the group
    that the list needs. The first that leads to an end counts, as in a regular expression that tries one after the
    other.
    """
    brackets = list(_BRACKET.finditer(text))
    ends: list[_Ends] = [_Ends()] * (len(brackets) + 1)
    after_group: int | None = None  # the place after the next closing brace
    first = None
    for place in range(len(brackets) - 1, -1, -1):
        follows = ends[place + 1]
        match brackets[place][0]:
            case "[":
                first = place if follows.before_group is not None else first
            case "]":
                ends[place] = _Ends(after_group=brackets[place].end())
            case "}":
                inside = follows.after_group if follows.in_group is None else follows.in_group
                ends[place] = _Ends(follows.before_group, inside, follows.after_group)
                after_group = place + 1
            case "{":
                group = _Ends() if after_group is None else ends[after_group]
                ends[place] = _Ends(
                    _first_of(follows.before_group, group.before_group, follows.in_group),
                    follows.in_group,
                    _first_of(follows.after_group, group.after_group),
                )
    return None if first is None else text[brackets[first].start() : ends[first + 1].before_group]


class _Ends(NamedTuple):
    """Where in the text a list ends that continues here, by what it has seen of the group without square brackets."""

    before_group: int | None = None
    in_group: int | None = None
    after_group: int | None = None


def _first_of(*ends: int | None) -> int | None:
    return next((end for end in ends if end is not None), None)
