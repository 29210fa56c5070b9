"""From the log of an evaluation to its resolution."""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from gymq.workers.resources.swerl_gen.logs import (
    FAILURES,
    Statuses,
    cleaned,
    statuses_in,
    statuses_of_own_parser,
)
from gymq.workers.resources.swerl_gen.rules import AS_MEANT, IssueRule

Resolution = Literal["RESOLVED_FULL", "RESOLVED_PARTIAL", "RESOLVED_NO"]

REWARDS: dict[Resolution, float] = {"RESOLVED_FULL": 1.0, "RESOLVED_PARTIAL": 0.2, "RESOLVED_NO": 0.0}

_BROKEN = (
    "error: patch",
    "Reset Failed",
    "Tests Errored",
    "Tests Timed Out",
    "Failed to reset task environment",
    "Could not fix",
)


def resolution_of(
    log: str,
    repository: str,
    fail_to_pass: list[str],
    pass_to_pass: list[str],
    own: str | None = None,
    rule: IssueRule = AS_MEANT,
) -> Resolution:
    """Return the results of the listed tests in the log of an evaluation.

    Args:
        log: of the setup, of applying the edits and of the tests.
        own: what the instance's own parser wrote, if it has one.
    """
    log = cleaned(log)
    if any(text in log for text in _BROKEN) or "applied patch" not in log.lower():
        return "RESOLVED_NO"
    statuses = statuses_in(log, repository, rule.merged) if own is None else statuses_of_own_parser(own)
    new = _share_passed(fail_to_pass, statuses, rule.failures)
    old = _share_passed(pass_to_pass, statuses, FAILURES)
    if old < 1.0 or new == 0.0:
        return "RESOLVED_NO"
    return "RESOLVED_FULL" if new == 1.0 else "RESOLVED_PARTIAL"


def _share_passed(names: list[str], statuses: Statuses, failures: Set[str]) -> float:
    """Return it of those that passed or failed. A test that is absent failed, and of no tests all passed."""
    passed = sum(statuses.get(name) == "PASSED" for name in names)
    failed = sum(statuses.get(name, "FAILED") in failures for name in names)
    return passed / (passed + failed) if passed + failed else 1.0
