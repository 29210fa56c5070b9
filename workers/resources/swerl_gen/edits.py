"""Search-and-replace edits in a reply, the files that they make, and the patch that shows them.

Replies are hostile: each is read once, from its beginning to its end. No part is looked for again from another place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import NamedTuple

from gymq.errors import GymqError

# What says how tests are run, or what Python runs before them.
_TEST_SETUP = frozenset(
    (
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"),
        *("setup.cfg", "pyproject.toml", "setup.py", "entry_points.txt"),  # they name plugins of pytest
        *(".coveragerc", ".coveragerc.toml"),  # it names plugins of coverage
        "runtests.py",
    )
)
# Modules that Python or a runner of tests imports from the folder it is started in.
_TEST_MODULES = frozenset(("pytest", "_pytest", "pluggy", "iniconfig", "unittest", "sitecustomize", "usercustomize"))
_TEST_FOLDERS = frozenset(("test", "tests"))
_TEST_FILE = re.compile(r"test_.*|.*_tests?\.py|tests\.py|.*\.pth|.*\.egg-link")
CONTEXT_LINES = 3
MAX_EDITS = 1000  # each is looked for in a whole file

_FENCE = "```"
_HEADER = "\n### "
_SEARCH = re.compile(r"\s*+<<<<<<< SEARCH\n")
_BETWEEN = "\n=======\n"
_END = re.compile(r"\n>>>>>>> REPLACE\n*+```")


class Void(GymqError):
    """The answer as a whole earns nothing; the text gives the reason."""


class Repair(NamedTuple):
    """What a reply does to a repository."""

    files: dict[str, str]  # contents by path
    patch: str | None  # for the reader; None if it takes too long


def solution_of(reply: str, relaxed: bool) -> str:
    """Return the content of the solution tags, after the thoughts.

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
    """Return search and replacement texts by path, in order; the same pair once."""
    edits: dict[str, dict[tuple[str, str], None]] = {}
    for path, search, replacement in _blocks(solution):
        edits.setdefault(path, {})[search, replacement] = None
    return {path: list(pairs) for path, pairs in edits.items()}


def _blocks(solution: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, search text and replacement of each fenced block.

    A block begins with a line that holds a fence, followed by the line with the path, and ends at the next end mark
    with a fence behind it. A separator or an end mark that is missing is missing for all blocks that follow, too.
    """
    free = 0  # what lies before belongs to earlier blocks
    header = solution.find(_HEADER)
    while header >= 0:
        line = solution.rfind("\n", free, header) + 1
        path_end = solution.find("\n", header + len(_HEADER))
        search = None
        if path_end >= 0 and solution.find(_FENCE, max(line, free), header) >= 0:
            search = _SEARCH.match(solution, path_end + 1)
        if search is None:
            header = solution.find(_HEADER, header + 1)
            continue
        between = solution.find(_BETWEEN, search.end())
        end = _END.search(solution, between + len(_BETWEEN)) if between >= 0 else None
        if end is None:
            return
        path = solution[header + len(_HEADER) : path_end]
        yield path, solution[search.end() : between], solution[between + len(_BETWEEN) : end.start()]
        free = end.end()
        header = solution.find(_HEADER, free)


def apply_edits(edits: dict[str, list[tuple[str, str]]], contents: dict[str, str]) -> dict[str, str]:
    """Return the new contents of the files that are edited. A file that is not there is empty.

    Raises:
        Void: an edit changes nothing, its search text begins no line, or there are too many.
    """
    if sum(map(len, edits.values())) > MAX_EDITS:
        raise Void(f"there are more than {MAX_EDITS} edits")
    return {path: _edited(path, pairs, contents.get(path, "")) for path, pairs in edits.items()}


def _edited(path: str, pairs: list[tuple[str, str]], content: str) -> str:
    text = "\n" + content  # so that each line begins after a newline
    places = []
    for search, replacement in pairs:
        if search == replacement:
            raise Void(f"an edit of {path} changes nothing")
        start = text.find("\n" + search)
        if start < 0:
            raise Void(f"a search text is not in {path}")
        places.append((start + 1, search, replacement))
    # From the last place to the first, since each was located in the original. What is done already lies on a stack of
    # pieces, the next one last; an edit takes as much of it as its search text is long, also out of a replacement.
    pieces: list[str] = []
    done = len(text)
    for start, search, replacement in sorted(places, key=lambda place: place[0], reverse=True):
        pieces.append(text[start:done])
        left = len(search)
        while left and pieces:
            piece = pieces.pop()
            if len(piece) > left:
                pieces.append(piece[left:])
            left -= min(left, len(piece))
        pieces.append(replacement)
        done = start
    return text[1:done] + "".join(reversed(pieces))


def edited_files(reply: str, relaxed: bool, contents: dict[str, str]) -> dict[str, str]:
    """Return the new contents of the files that a reply changes, by path.

    Raises:
        Void: its edits change no line, or cannot be applied.
    """
    files = apply_edits(edits_in(solution_of(reply, relaxed)), contents)
    changed = {path: text for path, text in files.items() if _lines(contents, path) != text.splitlines()}
    if not changed:
        raise Void("the edits change nothing")
    return changed


def without_tests(files: dict[str, str], contents: dict[str, str]) -> dict[str, str]:
    """Return files without those of tests and of how they are run, unless they are among those that the row shows.

    Raises:
        Void: there are no others.
    """
    kept = {path: text for path, text in files.items() if path in contents or not is_of_tests(path)}
    if not kept:
        raise Void("the edits only change tests")
    return kept


def is_of_tests(path: str) -> bool:
    """Return whether a file is one of tests, or of how they are run."""
    *folders, name = path.split("/")
    module = folders[-1] if folders and name == "__init__.py" else name.removesuffix(".py")
    if name in _TEST_SETUP or module in _TEST_MODULES:
        return True
    # `bin/test` is a program that runs tests.
    return bool(folders and _TEST_FOLDERS.intersection((*folders, name))) or _TEST_FILE.fullmatch(name) is not None


def patch_of(files: dict[str, str], contents: dict[str, str], remove_repo_name: bool) -> str:
    """Return the changes of files as one patch, for the reader. How lines end is not in it, so it cannot be applied to
    every file.
    """
    patches = ""
    for path, text in files.items():
        lines = difflib.unified_diff(
            _lines(contents, path), text.splitlines(), "old", "new", n=CONTEXT_LINES, lineterm=""
        )
        shown = path_in_repository(path, remove_repo_name)
        between = "\n" if patches else ""  # an empty line, which git ignores
        patches += between + "\n".join([f"diff --git a/{shown} b/{shown}", *lines]) + "\n"
    return patches


def path_in_repository(path: str, remove_repo_name: bool) -> str:
    return path.partition("/")[2] if remove_repo_name else path


def _lines(contents: dict[str, str], path: str) -> list[str]:
    return contents.get(path, "").splitlines()
