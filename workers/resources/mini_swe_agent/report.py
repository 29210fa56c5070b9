"""The evaluation report of SWE-bench, and its reward."""

from __future__ import annotations

from typing import Any

KINDS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def reward_of(report: Any, instance_id: str) -> float:
    """Return 1 if the report marks the instance as resolved, and at least one test ran; otherwise 0.

    Args:
        report: `{"eval_report": {instance_id: {"resolved", "tests_status"}}}`, as `get_eval_report` of SWE-bench makes
            the inner part. Anything else, also null, is worth 0.
    """
    entry = _member(_member(report, "eval_report"), instance_id)
    tests = _member(entry, "tests_status")
    return float(_member(entry, "resolved") is True and _tests_that_ran(tests) > 0)


def _tests_that_ran(tests: Any) -> int:
    """How many tests a `tests_status` lists; 0 if any part of it has another form."""
    count = 0
    for kind in KINDS:
        outcomes = _member(tests, kind, {})
        for outcome in ("success", "failure"):
            names = outcomes.get(outcome, []) if isinstance(outcomes, dict) else None
            if not isinstance(names, list):
                return 0
            count += len(names)
    return count


def _member(value: Any, name: str, default: Any = None) -> Any:
    return value.get(name, default) if isinstance(value, dict) else None
