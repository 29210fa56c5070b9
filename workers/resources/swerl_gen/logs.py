"""The status of each test, read from a log. Which tests a log names how follows SWE-bench."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR")

Statuses = dict[str, str]

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_COLOUR_REMNANT = re.compile(r"\[\d+m")
_PERCENTAGE = re.compile(r"\s*\[\s*\d+%\]\s*$")
_PARAMETER = re.compile(r"(.*?)\[(.*)\]")
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
    """Without colours."""
    return _COLOUR.sub("", log).replace("…", "...")


def statuses_in(log: str, repository: str) -> Statuses:
    """Status by test name; a later line counts more than an earlier one."""
    return _PARSERS.get(repository.rpartition("/")[2], _any_pytest)(log)


def statuses_of_own_parser(text: str) -> Statuses:
    """What an instance's own parser wrote: `{"tests": [{"name", "status"}]}`; nothing if it wrote something else."""
    try:
        return {test["name"]: test["status"] for test in json.loads(text)["tests"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _any_pytest(log: str) -> Statuses:
    found = {}
    for line in log.split("\n"):
        line = _PERCENTAGE.sub("", _COLOUR_REMNANT.sub("", line)).rstrip("\r")
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith(STATUSES):
            name, status = words[1], words[0]
        elif line.endswith(STATUSES):
            name, status = words[0], words[-1]
        else:
            continue
        if status in STATUSES:
            found[_without_folders(name)] = status
    return found


def _without_folders(name: str) -> str:
    """A parameter that is an absolute path differs from machine to machine, so only its last element counts."""
    parameter = _PARAMETER.fullmatch(name)
    if parameter is None or not parameter[2].startswith("/") or parameter[2].startswith("//") or "*" in parameter[2]:
        return name
    return f"{parameter[1]}[/{parameter[2].rpartition('/')[2]}]"


def _pytest_itself(log: str) -> Statuses:
    found = {}
    for line in log.split("\n"):
        words = line.split()
        if len(words) >= 2 and line.startswith(STATUSES) and words[0] in STATUSES:
            found[words[1]] = words[0]
    return found


def _django(log: str) -> Statuses:
    found: Statuses = {}
    previous = None
    for line in map(str.strip, log.split("\n")):
        for end, status in _DJANGO_ENDS.items():
            if line.endswith(end):
                found[line.removesuffix(end)] = status
        if " ... skipped" in line:
            found[line.partition(" ... skipped")[0]] = "SKIPPED"
        for head, status in _DJANGO_HEADS.items():
            if line.startswith(head) and len(line.split()) > 1:
                found[line.split()[1]] = status
        if line.startswith("ok") and previous is not None:
            found[previous] = "PASSED"
        if " ... " in line or line.endswith(" ..."):
            previous = line.partition(" ...")[0]
    return found


def _sympy(log: str) -> Statuses:
    found = {}
    for line in map(str.strip, log.split("\n")):
        if not line.startswith("test_"):
            continue
        line = line.removesuffix("[OK]").removesuffix("[FAIL]").rstrip()
        for end, status in _SYMPY_ENDS.items():
            if line.endswith(end):
                found[line.split()[0]] = status
    return found


_PARSERS: dict[str, Callable[[str], Statuses]] = {"pytest": _pytest_itself, "django": _django, "sympy": _sympy}
