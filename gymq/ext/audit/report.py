"""The findings of an audit, and the names of its checks."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gymq.errors import UsageError
from gymq.ext.shared.checks import Check

# Replies that deserve no reward. An audit gives each of them to the rows of the gold replies.
REPLIES = (
    "empty",
    "echo",
    "refusal",
    "all options",
    "repeated text",
    "NaN",
    "huge",
    "deep",
    "unicode",
    "tool calls only",
)

# Answers made from the gold replies: right ones in another dress, and wrong ones that are near.
FAMILIES = ("dressed answers", "near misses")

CHECKS = (
    "gold",
    *FAMILIES,
    *REPLIES,
    "malformed rows",
    "same twice",
    "under load",
    "growth",
    "event loop",
    "an idle session",
    "tools",
    "secrets",
    "time",
)
"""All checks, in the order of the report."""


class AuditReport(msgspec.Struct):
    """The outcome of an audit."""

    environment: str
    checks: list[Check] = []
    verdicts: int = 0
    slowest_s: float = 0.0  # of the verdicts that ran alone
    limit_s: float | None = None  # for one verdict; None: only that of the rollout

    @property
    def ok(self) -> bool:
        """Return whether every check passed."""
        return all(check.status != "failed" for check in self.checks)

    @property
    def problems(self) -> list[str]:
        """The details of the checks that failed, each with the check's name."""
        failed = [check for check in self.checks if check.status == "failed"]
        return [f"{check.name}: {line}" for check in failed for line in check.details or [check.summary]]


def check_names(only: Collection[str]) -> frozenset[str]:
    """Return the chosen names; by default all.

    Raises:
        UsageError: one of them is unknown.
    """
    for name in only:
        if name not in CHECKS:
            raise UsageError(
                f"--only {name}: neither a check nor a reply has this name; choose from {', '.join(CHECKS)}"
            )
    return frozenset(only or CHECKS)
