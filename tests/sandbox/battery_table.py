"""Attacks by programs, which docs/sandbox.md sums up: `python -m tests.sandbox.battery_table` runs them everywhere."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any

import pytest

from .users import REPOSITORY, User, delegated, python_as

LONGEST_S = 1200.0
COMBINATIONS: list[tuple[str, User, str]] = [
    ("namespaces", "root", "its own"),
    ("namespaces", "root", "none"),
    ("namespaces", "root without CAP_SYS_ADMIN", "its own"),
    ("namespaces", "an ordinary user", "delegated"),
    ("namespaces", "an ordinary user", "none"),
    ("bubblewrap", "root", "its own"),
    ("bubblewrap", "an ordinary user", "delegated"),
    ("bubblewrap", "an ordinary user", "none"),
    ("process", "root", "its own"),
    ("process", "root", "none"),
    ("process", "an ordinary user", "none"),
]


def result(isolation: str, user: User, group: str) -> dict[str, Any]:
    """Run the battery as that user; what it prints. The test is skipped where that cannot be tried."""
    command = python_as(user, "-m", "tests.sandbox.battery", isolation, *(["weaker"] if group == "none" else []))
    with delegated(command) if group == "delegated" else contextlib.nullcontext(command) as started:
        ran = subprocess.run(started, cwd=REPOSITORY, capture_output=True, timeout=LONGEST_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said: dict[str, Any] = json.loads(ran.stdout)
    if "not_here" in said:
        pytest.skip(said["not_here"])
    return said


def main() -> None:
    print(
        "| isolation | user | control group | programs | attempts | succeeded |\n| --- | --- | --- | --- | --- | --- |"
    )
    for combination in COMBINATIONS:
        try:
            said = result(*combination)
            left = said["processes"] + said["folders"]
            found = f"{said['programs']} | {said['attempts']} | {', '.join(map(str, said['faults'] + left)) or 'none'}"
        except pytest.skip.Exception as skipped:
            found = f"not here: {skipped} | |"
        print(f"| {' | '.join(combination)} | {found} |", flush=True)


if __name__ == "__main__":
    main()
