"""From the log of an evaluation to its resolution."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Literal, NamedTuple

from gymq.workers.resources.swerl_gen.edits import without_tests
from gymq.workers.resources.swerl_gen.logs import (
    FAILURES,
    Reported,
    Statuses,
    cleaned,
    statuses_in,
    statuses_of_own_parser,
    with_failures_kept,
)

Files = dict[str, str]  # contents by path


class IssueRule(NamedTuple):
    """What a rule set decides.

    Attributes:
        kept: returns the edited files that count, of those and the contents before.
        merged: see `statuses_in`.
        failures: statuses with which a test failed that the edits are to make pass.
        alike: whether nothing but the reference patch's own changes differs between both runs of a reproduction.
        runs_again: how often a script that seems to reproduce the issue is run again.
    """

    kept: Callable[[Files, Files], Files]
    merged: Callable[[Reported], Statuses]
    failures: Set[str]
    alike: bool
    runs_again: int


def _all_files(files: Files, _contents: Files) -> Files:
    return files


AS_MEANT = IssueRule(without_tests, with_failures_kept, {*FAILURES, "SKIPPED"}, alike=True, runs_again=4)
PUBLISHED = IssueRule(_all_files, dict, FAILURES, alike=False, runs_again=0)

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
