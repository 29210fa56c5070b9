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
        name, status = _name_and_status(line)
        if status in STATUSES:
            found[_without_folders(name)] = status
    return found


def _name_and_status(line: str) -> tuple[str, str]:
    """What a line of pytest begins or ends with; nothing if it names no test."""
    words = line.split()
    if len(words) < 2:
        return "", ""
    if line.startswith(STATUSES):
        return words[1], words[0]
    return (words[0], words[-1]) if line.endswith(STATUSES) else ("", "")


def _without_folders(name: str) -> str:
    """A parameter that is an absolute path differs from machine to machine, so only its last element counts."""
    parameter = _PARAMETER.fullmatch(name)
    if parameter is None or not parameter[2].startswith("/") or parameter[2].startswith("//"):
        return name
    if "*" in parameter[2] or "-/" in parameter[2]:  # a pattern, or more than one path
        return name
    return f"{parameter[1]}[/{parameter[2].rpartition('/')[2]}]"


def _pytest_itself(log: str) -> Statuses:
    found = {}
    for line in log.split("\n"):
        name, status = _name_and_status(line)
        if status in STATUSES:
            found[name] = status
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
            words = line.split()
            if "PASSED" in line and len(words) > 1:  # run by pytest
                found[words[1] if words[0] == "PASSED" else words[0]] = "PASSED"
            continue
        line = line.removesuffix("[OK]").removesuffix("[FAIL]").rstrip()
        for end, status in _SYMPY_ENDS.items():
            if line.endswith(end):
                found[line.split()[0]] = status
    return found


_PARSERS: dict[str, Callable[[str], Statuses]] = {"pytest": _pytest_itself, "django": _django, "sympy": _sympy}
