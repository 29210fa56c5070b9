"""The status of each test, read from a log. Which tests a log names how follows SWE-bench.

Logs are written by the code under test: each line is read once, however long it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR")
FAILURES = frozenset({"FAILED", "ERROR"})

Statuses = dict[str, str]
Reported = Iterator[tuple[str, str]]  # names and statuses, in the order of the lines

_COLOUR = re.compile(r"\x1b\[[0-9;]*+[A-Za-z]")
_COLOUR_REMNANT = re.compile(r"\[\d++m")
_DJANGO_ENDS = {
    " ... ok": "PASSED",
    " ... OK": "PASSED",
    " ...  OK": "PASSED",
    " ... FAIL": "FAILED",
    " ... ERROR": "ERROR",
}
_DJANGO_HEADS = {"FAIL:": "FAILED", "ERROR:": "ERROR"}
_SYMPY_ENDS = {" ok": "PASSED", " F": "FAILED", " E": "ERROR"}


def cleaned(log: str) -> str:
    """Return a log without colours."""
    return _COLOUR.sub("", log).replace("…", "...")


def statuses_in(log: str, repository: str, merged: Callable[[Reported], Statuses]) -> Statuses:
    """Return the status by test name.

    Args:
        merged: makes them of the lines of pytest or Django, which report failures last themselves. Names in sympy's
            logs are without their file, so another test may have the same.
    """
    name = repository.rpartition("/")[2]
    if name == "sympy":
        return dict(_sympy(log))
    return merged({"django": _django, "pytest": _pytest_itself}.get(name, _any_pytest)(log))


def statuses_of_own_parser(text: str) -> Statuses:
    """Return what an instance's own parser wrote: `{"tests": [{"name", "status"}]}`; nothing otherwise."""
    try:
        return {test["name"]: test["status"] for test in json.loads(text)["tests"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def with_failures_kept(reported: Reported) -> Statuses:
    """Return the last status of each test, but for a failure, which a later line does not undo."""
    found: Statuses = {}
    for name, status in reported:
        if found.get(name) not in FAILURES:
            found[name] = status
    return found


def _any_pytest(log: str) -> Reported:
    for line in log.split("\n"):
        line = _without_percentage(_COLOUR_REMNANT.sub("", line)).rstrip("\r")
        name, status = _name_and_status(line)
        if status in STATUSES:
            yield _without_folders(name), status


def _name_and_status(line: str) -> tuple[str, str]:
    """Return what a line of pytest begins or ends with; nothing if it names no test."""
    begins = line.startswith(STATUSES)
    if not begins and not line.endswith(STATUSES):
        return "", ""
    words = line.split(None, 2)
    if len(words) < 2:
        return "", ""
    return (words[1], words[0]) if begins else (words[0], line.rsplit(None, 1)[-1])


def _without_percentage(line: str) -> str:
    """Cut a percentage in square brackets from the end of a line, and the blanks before it."""
    stripped = line.rstrip()
    if not stripped.endswith("%]"):
        return line
    number = stripped.removesuffix("%]")
    before = number.rstrip("0123456789")
    if before == number or not before.rstrip().endswith("["):
        return line
    return before.rstrip().removesuffix("[").rstrip()


def _without_folders(name: str) -> str:
    """Return a name without the folders of its parameter.

    A parameter that is an absolute path differs from machine to machine, so only its last element counts.
    """
    test, bracket, rest = name.partition("[")
    if not bracket or not rest.endswith("]"):
        return name
    parameter = rest.removesuffix("]")
    if not parameter.startswith("/") or parameter.startswith("//"):
        return name
    if "*" in parameter or "-/" in parameter:  # a pattern, or more than one path
        return name
    return f"{test}[/{parameter.rpartition('/')[2]}]"


def _pytest_itself(log: str) -> Reported:
    for line in log.split("\n"):
        name, status = _name_and_status(line)
        if status in STATUSES:
            yield name, status


def _django(log: str) -> Reported:
    previous = None
    for line in map(str.strip, log.split("\n")):
        for end, status in _DJANGO_ENDS.items():
            if line.endswith(end):
                yield line.removesuffix(end), status
        if " ... skipped" in line:
            yield line.partition(" ... skipped")[0], "SKIPPED"
        for head, status in _DJANGO_HEADS.items():
            words = line.split(None, 2)[1:2] if line.startswith(head) else []
            if words:
                yield words[0], status
        if line.startswith("ok") and previous is not None:
            yield previous, "PASSED"
        if " ... " in line or line.endswith(" ..."):
            previous = line.partition(" ...")[0]


def _sympy(log: str) -> Reported:
    for line in map(str.strip, log.split("\n")):
        if not line.startswith("test_"):
            words = line.split(None, 2) if "PASSED" in line else []
            if len(words) > 1:  # run by pytest
                yield words[1] if words[0] == "PASSED" else words[0], "PASSED"
            continue
        line = line.removesuffix("[OK]").removesuffix("[FAIL]").rstrip()
        for end, status in _SYMPY_ENDS.items():
            if line.endswith(end):
                yield line.split(None, 1)[0], status
