"""A run whose rows changed is resumed only if it keeps some of them, and no setting asks for fewer rollouts."""

from pathlib import Path
from typing import Any

import pytest

from gymq.data.disk_index import EarlierRows
from gymq.data.materialise import MaterialiseOptions
from gymq.data.run_changes import Change
from gymq.errors import UsageError
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    rows = tmp_path / "rows.jsonl"
    rows.touch()
    return RunPlan(CollectOptions(rows, tmp_path / "rollouts.jsonl", MaterialiseOptions()))


@pytest.mark.parametrize(
    ("name", "before", "now", "is_refused"),
    [
        ("limit", None, 3, True),
        ("limit", 5, 3, True),
        ("limit", 3, 5, False),
        ("limit", 3, None, False),
        ("num_repeats", 4, 2, True),
        ("num_repeats", 2, 4, False),
        ("num_repeats", 2, {"_default": 4}, True),  # the numbers alone do not tell
        ("agent_name", "one", "other", True),
    ],
)
def test_a_setting_that_asks_for_fewer_rollouts_is_refused(
    plan: RunPlan, name: str, before: Any, now: Any, is_refused: bool
) -> None:
    with EarlierRows() as known:
        for task_index, digest in enumerate((b"kept", b"gone")):
            known.add(task_index, 0, digest)
        known.find(0, 0, b"kept")
        if is_refused:
            with pytest.raises(UsageError, match="cannot be resumed because"):
                plan.check_kept(known, [Change(name, before, now)])
        else:
            plan.check_kept(known, [Change(name, before, now)])
        known.find(1, 0, b"gone")  # all rows are there
        plan.check_kept(known, [Change(name, before, now)])


def test_a_run_that_keeps_none_of_its_rows_is_refused(plan: RunPlan) -> None:
    with EarlierRows() as known:
        known.add(0, 0, b"gone")
        with pytest.raises(UsageError, match="none of its rows is in"):
            plan.check_kept(known, [])
