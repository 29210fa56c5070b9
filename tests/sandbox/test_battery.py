"""All hostile programs of `battery`, in each isolation, as root and as an ordinary user."""

from __future__ import annotations

import pytest

from .battery_table import COMBINATIONS, result
from .users import User

# The weakest that hides the machine; each takes a minute. Limits of control groups have tests of their own.
BY_DAY = ("namespaces", "an ordinary user", "none")


@pytest.mark.parametrize(
    ("isolation", "user", "group"),
    [pytest.param(*one, marks=[] if one == BY_DAY else [pytest.mark.nightly]) for one in COMBINATIONS],
)
def test_what_programs_try_fails(isolation: str, user: User, group: str):
    said = result(isolation, user, group)
    assert ("(weaker)" in said["active"]) == (group == "none")
    assert said["attempts"] > 147
    assert (said["faults"], said["processes"], said["folders"]) == ([], [], []), said["active"]
