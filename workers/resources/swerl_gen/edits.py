"""Search-and-replace edits in a reply, and the patch that they make."""

from __future__ import annotations

import difflib
import re

CONTEXT_LINES = 3

_BLOCK = re.compile(r"```.*?\n### (.*)\n\s*<<<<<<< SEARCH\n([\s\S]*?)\n=======\n([\s\S]*?)\n>>>>>>> REPLACE\n*```")


class Void(Exception):
    """The answer as a whole is worth nothing; the text says why."""


def solution_of(reply: str, relaxed: bool) -> str:
    """What stands in the solution tags, after the thoughts.

    Args:
        relaxed: without tags the whole text is the solution.

    Raises:
        Void: there are no such tags.
    """
    if not relaxed and not _is_tagged(reply):
        raise Void("there are no solution tags")
    if "<think>" in reply and "</think>" in reply:
        reply = reply.rpartition("</think>")[2]
    if relaxed and not _is_tagged(reply):
        return reply.strip()
    _, opening, rest = reply.partition("<solution>")
    if not opening:
        raise Void("there is no solution after the thoughts")
    return rest.partition("</solution>")[0].strip()


def _is_tagged(reply: str) -> bool:
    return "<solution>" in reply and "</solution>" in reply


def edits_in(solution: str) -> dict[str, list[tuple[str, str]]]:
    """Search and replacement texts by path, in order; the same pair once."""
    edits: dict[str, list[tuple[str, str]]] = {}
    for path, search, replacement in _BLOCK.findall(solution):
        pairs = edits.setdefault(path, [])
        if (search, replacement) not in pairs:
            pairs.append((search, replacement))
    return edits


def apply_edits(edits: dict[str, list[tuple[str, str]]], contents: dict[str, str]) -> dict[str, str]:
    """The new contents of the files that are edited. A file that is not there is empty.

    Raises:
        Void: an edit changes nothing, or its search text begins no line.
    """
    changed = {}
    for path, pairs in edits.items():
        text = "\n" + contents.get(path, "")  # so that each line begins after a newline
        places = []
        for search, replacement in pairs:
            if search == replacement:
                raise Void(f"an edit of {path} changes nothing")
            start = text.find("\n" + search)
            if start < 0:
                raise Void(f"a search text is not in {path}")
            places.append((start, search, replacement))
        for start, search, replacement in sorted(places, key=lambda place: place[0], reverse=True):
            text = text[: start + 1] + replacement + text[start + 1 + len(search) :]
        changed[path] = text[1:]
    return changed


def patch_of(solution: str, contents: dict[str, str], remove_repo_name: bool) -> str:
    """The edits of a solution as one patch.

    Raises:
        Void: they change nothing, or cannot be applied.
    """
    patches = ""
    for path, text in apply_edits(edits_in(solution), contents).items():
        lines = list(
            difflib.unified_diff(
                contents.get(path, "").splitlines(), text.splitlines(), "old", "new", n=CONTEXT_LINES, lineterm=""
            )
        )
        if lines:
            shown = path.partition("/")[2] if remove_repo_name else path
            between = "\n" if patches else ""  # an empty line, which git ignores
            patches += between + "\n".join([f"diff --git a/{shown} b/{shown}", *lines]) + "\n"
    if not patches:
        raise Void("the edits change nothing")
    return patches
