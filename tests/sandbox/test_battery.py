"""All hostile programs of `battery`, in each isolation, as root and as an ordinary user."""

from __future__ import annotations

import json
import subprocess

import pytest

from .users import REPOSITORY, User, python_as

LONGEST_S = 900.0


@pytest.mark.parametrize(
    ("isolation", "user"),
    [
        ("namespaces", "root"),
        pytest.param("namespaces", "root without CAP_SYS_ADMIN", marks=pytest.mark.nightly),
        ("namespaces", "an ordinary user"),
        ("bubblewrap", "root"),
        ("bubblewrap", "an ordinary user"),
        pytest.param("process", "root", marks=pytest.mark.nightly),
        pytest.param("process", "an ordinary user", marks=pytest.mark.nightly),
    ],
)
def test_what_programs_try_fails(isolation: str, user: User):
    command = python_as(user, "-m", "tests.sandbox.battery", isolation)
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=LONGEST_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said = json.loads(ran.stdout)
    if "not_here" in said:
        pytest.skip(said["not_here"])
    assert said["attempts"] > 147
    assert (said["faults"], said["processes"], said["folders"]) == ([], [], []), said["active"]
