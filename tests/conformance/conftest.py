"""The summary at the end of a run: one line a case file."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from .cases import CASE_FILE

_OUTCOMES = {"passed": "passed", "failed": "failed", "error": "failed", "xfailed": "loose", "skipped": "skipped"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    yield  # the outermost wrapper writes last: pytest's own summary comes before ours
    counts: dict[str, Counter[str]] = {}
    for category, outcome in _OUTCOMES.items():
        for report in terminalreporter.stats.get(category, []):
            label = dict(getattr(report, "user_properties", ())).get(CASE_FILE)  # a module that is skipped has none
            if label:
                counts.setdefault(label, Counter())[outcome] += 1
    if not counts:
        return
    terminalreporter.section("conformance")
    for label, count in sorted(counts.items()):
        line = f"{label}: {count['passed']} passed, {count['failed']} failed, {count['loose']} loose"
        skipped = f" ({count['skipped']} skipped)" if count["skipped"] else ""
        terminalreporter.write_line(line + skipped)
