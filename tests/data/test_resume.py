import json
from typing import Any

import pytest

from gymq.data.jsonl import JsonlText
from gymq.data.resume import Resume
from gymq.data.rows import RowError
from gymq.data.run_files import output_row
from gymq.protocol.messages import VerifiedRollout

ROWS = [
    {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "ag"}, "n": 10 * task + rollout}
    for task in range(2)
    for rollout in range(2)
]


def lines(name: str, rows: list[dict[str, Any]]) -> JsonlText:
    return JsonlText(name, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def key(task: int, rollout: int, **members: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **members}


def resume(completed: list[dict[str, Any]], failures: list[dict[str, Any]] = [], **options: Any) -> Resume:  # noqa: B006
    return Resume(lines("m.jsonl", ROWS), lines("out.jsonl", completed), lines("failures.jsonl", failures), **options)


def left(plan: Resume) -> list[tuple[int, int]]:
    return [(row.task_index, row.rollout_index) for row in plan.to_run()]


def test_rows_with_a_result_are_not_run_again() -> None:
    with resume([key(1, 1), key(0, 0)]) as plan:
        assert left(plan) == [(0, 1), (1, 0)]
        assert list(plan.done) == [(0, 0), (1, 1)]
        assert plan.num_rows == 4
        assert plan.num_rollouts(1) == 2


def test_a_result_that_is_there_twice_is_done_once() -> None:
    with resume([key(0, 0), key(0, 0)]) as plan:
        assert list(plan.done) == [(0, 0)]
        assert len(plan.done) == 1


@pytest.mark.parametrize(
    ("marks", "may_be_retried"),
    [
        ({}, True),
        ({"_ng_failure_terminal": True}, False),
        ({"_ng_failure_terminal": True, "_ng_failure_curable": True}, True),
    ],
)
def test_a_group_of_failures_says_whether_another_try_may_help(marks: dict[str, bool], may_be_retried: bool) -> None:
    failures = [key(0, 0, **marks), key(0, 1, _ng_failure_terminal=True)]
    with resume([], failures) as plan:
        (group,) = plan.failed(lines("failures.jsonl", failures))
    assert group.may_be_retried is may_be_retried


def test_a_failed_row_is_stamped_with_the_number_of_failed_attempts() -> None:
    with resume([], [key(0, 1), key(0, 1)]) as plan:
        rows = list(plan.to_run())
    assert [row.attempt for row in rows] == [0, 2, 0, 0]
    assert json.loads(rows[1].json) == {**ROWS[1], "_ng_attempt_index": 2}
    assert "_ng_attempt_index" not in json.loads(rows[0].json)


@pytest.mark.parametrize(
    ("of_the_row", "in_the_task", "in_the_file"), [(None, 0, None), (None, 2, 2), (3, 0, 3), (3, 2, 5), ("3", 2, 2)]
)
def test_a_line_has_the_attempts_before_its_task_and_those_within(
    of_the_row: object, in_the_task: int, in_the_file: int | None
) -> None:
    row = {} if of_the_row is None else {"_ng_attempt_index": of_the_row}
    outcome = VerifiedRollout(
        run="r",
        task_index=0,
        rollout_index=0,
        agent="ag",
        row=json.dumps(row).encode(),
        attempt=in_the_task,
        duration_s=1.0,
        response={"output": []},
        reward=1.0,
        verdict={},
    )
    assert json.loads(output_row(outcome)).get("_ng_attempt_index") == in_the_file


def test_a_row_is_given_up_at_the_attempt_limit() -> None:
    failures = [key(0, 1)] * 2 + [key(1, 0)]
    with resume([], failures, max_attempts=2) as plan:
        assert left(plan) == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("max_attempts", [0, -1])
def test_a_limit_below_one_stands_for_three(max_attempts: int) -> None:
    with resume([], [key(0, 0)] * 2 + [key(0, 1)] * 3, max_attempts=max_attempts) as plan:
        assert left(plan) == [(0, 0), (1, 0), (1, 1)]


def test_a_terminal_failure_is_not_tried_again() -> None:
    failures = [key(0, 0, _ng_failure_terminal=True), key(0, 1, _ng_failure_terminal=False)]
    with resume([], failures) as plan:
        assert left(plan) == [(0, 1), (1, 0), (1, 1)]


def test_a_failure_before_a_result_is_no_failed_rollout() -> None:
    failures = [key(0, 0), key(0, 1, _ng_failure_terminal=True), key(1, 0)]
    with resume([key(0, 0)], failures) as plan:
        assert plan.num_failed() == (2, 1)


def test_a_curable_failure_counts_as_no_attempt() -> None:
    curable = key(0, 0, _ng_failure_curable=True, _ng_failure_terminal=False)
    with resume([], [curable] * 9) as plan:
        rows = list(plan.to_run())
    assert [row.attempt for row in rows] == [0, 0, 0, 0]


def test_failures_without_indices_say_nothing() -> None:
    with resume([], [{"_ng_failure_class": "x"}, {"_ng_task_index": 0, "_ng_failure_terminal": True}]) as plan:
        assert left(plan) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_result_of_another_run_is_refused() -> None:
    with pytest.raises(RowError, match=r"out\.jsonl:2: rollout \(5, 0\) is not in m\.jsonl"):
        resume([key(0, 0), key(5, 0)])


def test_a_row_that_is_there_twice_is_refused() -> None:
    with pytest.raises(RowError, match=r"m\.jsonl:5: rollout \(0, 0\) occurs twice"):
        Resume(lines("m.jsonl", [*ROWS, ROWS[0]]), lines("out.jsonl", []), lines("failures.jsonl", []))


DEEP = b'{"response": ' + b"[" * 5000 + b"]" * 5000 + b"}\n"


@pytest.mark.parametrize("text", [b'{"_ng_task_index": 0\n', b"{}\n", b'{"_ng_task_index": "0"}\n', b"[]\n", DEEP])
def test_a_result_that_cannot_be_read_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(RowError, match=r"out\.jsonl:2: "):
        Resume(lines("m.jsonl", ROWS), JsonlText("out.jsonl", b"\n" + text), lines("failures.jsonl", []))
