"""All hostile programs of `battery`, in each isolation, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest

from .users import REPOSITORY, User, delegated, python_as

LONGEST_S = 900.0


@pytest.mark.parametrize(
    ("isolation", "user", "group"),
    [
        ("namespaces", "root", "its own"),
        pytest.param("namespaces", "root", "none", marks=pytest.mark.nightly),
        pytest.param("namespaces", "root without CAP_SYS_ADMIN", "its own", marks=pytest.mark.nightly),
        ("namespaces", "an ordinary user", "none"),
        ("namespaces", "an ordinary user", "delegated"),
        ("bubblewrap", "root", "its own"),
        ("bubblewrap", "an ordinary user", "none"),
        pytest.param("bubblewrap", "an ordinary user", "delegated", marks=pytest.mark.nightly),
        pytest.param("process", "root", "its own", marks=pytest.mark.nightly),
        pytest.param("process", "root", "none", marks=pytest.mark.nightly),
        pytest.param("process", "an ordinary user", "none", marks=pytest.mark.nightly),
    ],
)
def test_what_programs_try_fails(isolation: str, user: User, group: str):
    command = python_as(user, "-m", "tests.sandbox.battery", isolation, *(["weaker"] if group == "none" else []))
    with delegated(command) if group == "delegated" else contextlib.nullcontext(command) as started:
        ran = subprocess.run(started, cwd=REPOSITORY, capture_output=True, timeout=LONGEST_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said = json.loads(ran.stdout)
    if "not_here" in said:
        pytest.skip(said["not_here"])
    if group == "delegated":
        assert "(weaker)" not in said["active"]
    assert said["attempts"] > 147
    assert (said["faults"], said["processes"], said["folders"]) == ([], [], []), said["active"]
