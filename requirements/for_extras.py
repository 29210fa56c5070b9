"""Print the part of locked.txt that extras of gymq need, for `pip install --require-hashes --no-deps -r`.

    python requirements/for_extras.py resources,observability

Runs with nothing installed. What needs what stands in the comments of locked.txt, so the part may hold a package more
than needed, never one less.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
BUILD = "build"
"""The name that stands for build.in: what pip needs before it can install the rest with --no-build-isolation."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWN = re.compile(r"gymq\[([^\]]*)\]")
_PACKAGE = re.compile(r"^(\S+)==")
_NEEDED_BY = re.compile(r"^    #(?: via)? +(\S+)")


def direct(extras: Iterable[str]) -> set[str]:
    """Return the names of the packages that these extras ask for themselves, with the base dependencies of gymq.

    Raises:
        KeyError: there is no such extra.
    """
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    names: set[str] = set()
    waiting, known = list(extras), {BUILD}
    if BUILD in waiting:
        names |= {name(line) for line in (HERE / "build.in").read_text(encoding="utf-8").splitlines() if line[0] != "#"}
    asked = [] if set(waiting) == {BUILD} else list(project["dependencies"])
    while waiting:
        extra = waiting.pop()
        if extra not in known:
            known.add(extra)
            asked += optional[extra]
            for requirement in optional[extra]:
                if own := _OWN.match(requirement):
                    waiting += own[1].split(",")
    return names | {name(requirement) for requirement in asked} - {"gymq"}


def name(requirement: str) -> str:
    """Return the name in a requirement, as locked.txt writes it."""
    found = _NAME.match(requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def blocks(lock: str) -> list[tuple[str, set[str], str]]:
    """Return each entry of a lock file: the name, the names of what needs it, its text."""
    found = []
    for text in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE):
        if package := _PACKAGE.match(text):
            needed_by = {by[1] for line in text.splitlines() if (by := _NEEDED_BY.match(line))}
            found.append((package[1], needed_by, text))
    return found


def needed(entries: list[tuple[str, set[str], str]], names: set[str]) -> set[str]:
    """Return the names of all packages that these need, themselves included.

    Raises:
        LookupError: one of them is not in the lock.
    """
    if missing := names - {package for package, _, _ in entries}:
        raise LookupError(f"requirements/locked.txt: {', '.join(sorted(missing))} missing; run `make lock`")
    found: set[str] = set()
    while names:
        found |= names
        names = {package for package, needed_by, _ in entries if needed_by & names} - found
    return found


def main() -> None:
    """Print the part for the extras that the command line names, with commas between."""
    entries = blocks((HERE / "locked.txt").read_text(encoding="utf-8"))
    try:
        chosen = needed(entries, direct(filter(None, ",".join(sys.argv[1:]).split(","))))
    except KeyError as error:
        sys.exit(f"pyproject.toml: the extra {error} is unknown; use one of those that it lists")
    except LookupError as error:
        sys.exit(str(error))
    sys.stdout.writelines(text for package, _, text in entries if package in chosen)


if __name__ == "__main__":
    main()
