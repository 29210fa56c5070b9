"""The findings of checks of a worker."""

from __future__ import annotations

from typing import Literal

import msgspec

from gymq.protocol.messages import FailureClass
from gymq.render import counted

MAX_DETAILS = 20

UNDECIDED = frozenset({FailureClass.JUDGE_FAILED, FailureClass.COMPONENT_FAILED})
"""Failures by which a verifier says that it cannot decide."""


class Check(msgspec.Struct):
    """The outcome of one check."""

    name: str
    status: Literal["ok", "failed", "none"]  # none: does not apply to the environment
    summary: str
    details: list[str] = []  # one line each


def checked(name: str, problems: list[str], summary: str, notes: list[str] | None = None) -> Check:
    """Return the outcome of a check: failed if there are problems.

    Args:
        summary: the result without problems.
        notes: further details without problems.
    """
    if problems:
        return Check(name, "failed", counted(len(problems), "problem"), problems[:MAX_DETAILS])
    return Check(name, "ok", summary, (notes or [])[:MAX_DETAILS])
