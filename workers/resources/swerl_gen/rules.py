"""The two ways to judge a repair and a reproduction: as they are meant, and as NeMo Gym does."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from gymq.workers.resources.swerl_gen.edits import without_tests
from gymq.workers.resources.swerl_gen.logs import FAILURES, Reported, Statuses, with_failures_kept

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
