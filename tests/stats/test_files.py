import errno
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.data.rows import RowError
from gymq.data.run_files import ReportFiles, RunFiles
from gymq.errors import UsageError
from gymq.stats.files import read_statistics
from tests.support.reports import report

ROWS: list[dict[str, Any]] = [
    {"_ng_task_index": t, "_ng_rollout_index": r, "agent_ref": {"name": f"a{t}"}, "text": "x", "responses": {"i": [1]}}
    for t in range(3)
    for r in range(2)
]


def result(task: int, rollout: int, **members: Any) -> dict[str, Any]:
    response = {"output": [{"text": "long"}], "usage": {"input_tokens": 3, "details": {"cached": 2}}}
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "response": response, "reward": 1.0, **members}


RESULTS = [
    result(t, r, reward=t / 3, solved=r == 0, note="text", big=10**25, list=[1]) for t in range(3) for r in (1, 0)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_report(rows: Path, results: Path) -> ReportFiles:
    written = ReportFiles.beside(results)
    read_statistics(RunFiles(results), rows=rows, report=written)
    return written


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_files_hold_the_profile(tmp_path: Path) -> None:
    rows, results = write(tmp_path / "in.jsonl", ROWS[::-1]), write(tmp_path / "run.jsonl", RESULTS)
    written = write_report(rows, results)
    expected = report(ROWS, RESULTS)
    assert written.reward_profiling == tmp_path / "run_reward_profiling.jsonl"
    assert written.agent_metrics == tmp_path / "run_agent_metrics.json"
    assert read(written.reward_profiling) == expected.groups
    assert read(written.agent_metrics) == [expected.agents]


def test_a_compressed_output_is_profiled_beside_it(tmp_path: Path) -> None:
    rows, plain = write(tmp_path / "in.jsonl", ROWS), write(tmp_path / "run.jsonl", RESULTS)
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert ReportFiles.beside(packed) == ReportFiles.beside(plain)
    assert read(write_report(rows, packed).reward_profiling) == report(ROWS, RESULTS).groups


def test_the_sample_keeps_the_text_of_the_row(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"_ng_task_index":0,"_ng_rollout_index":0,"agent_ref":{"name":"a"},"x":1e400,"y":1.10}\n')
    written = write_report(rows, write(tmp_path / "run.jsonl", [result(0, 0)]))
    assert '"sample":{"agent_ref":{"name":"a"},"x":1e400,"y":1.10}' in written.reward_profiling.read_text()


def test_a_number_that_is_too_large_is_left_out_and_its_rollout_counts(tmp_path: Path) -> None:
    rows, results = write(tmp_path / "in.jsonl", ROWS), tmp_path / "run.jsonl"
    large = '"estimate": 1e300, "odds": 1e999, "length": 7'
    results.write_text("".join(f"{json.dumps(one)[:-1]}, {large}}}\n" for one in RESULTS))
    written = write_report(rows, results)
    assert read(written.reward_profiling) == report(ROWS, [{**one, "length": 7} for one in RESULTS]).groups
    statistics = read_statistics(RunFiles(results), rows=rows)
    fields = statistics.profile.snapshot().agents["a0"].fields
    assert (fields["length"].mean, "estimate" in fields, "odds" in fields) == (7.0, False, False)


def test_nothing_is_left_behind_or_replaced_when_the_profile_fails(tmp_path: Path) -> None:
    rows, results = write(tmp_path / "in.jsonl", ROWS), write(tmp_path / "run.jsonl", RESULTS[:-1])
    for path in ReportFiles.beside(results):
        path.write_text("old")
    with pytest.raises(RowError, match=r"1 of 6 materialised rows have no result: rollouts \(2, 0\)"):
        write_report(rows, results)
    assert [path.read_text() for path in ReportFiles.beside(results)] == ["old"] * 3
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("line", "error", "reason"),
    [
        (json.dumps(RESULTS[0]), RowError, r"run\.jsonl:7: there is more than one result of rollout \(0, 1\)"),
        ("{torn", RowError, r"run\.jsonl:7: the line is not valid JSON"),
        ('{"_ng_task_index": 0}', RowError, r"run\.jsonl:7: `_ng_rollout_index`"),
        (
            '{"_ng_task_index": 0, "_ng_rollout_index": 9, "response": {}, "reward": 1e999}',
            RowError,
            r"run\.jsonl:7: the result of rollout \(0, 9\): `reward` is inf, too large",
        ),
        ('{"response": "text"}', RowError, r"run\.jsonl:7: a field cannot be read"),
    ],
)
def test_a_result_that_cannot_be_used_is_named_with_its_line(
    tmp_path: Path, line: str, error: type[Exception], reason: str
) -> None:
    rows, results = write(tmp_path / "in.jsonl", ROWS), write(tmp_path / "run.jsonl", RESULTS)
    results.write_text(results.read_text() + line + "\n")
    with pytest.raises(error, match=reason):
        write_report(rows, results)


def test_a_full_disk_is_told_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    rows, results = write(tmp_path / "in.jsonl", ROWS), write(tmp_path / "run.jsonl", RESULTS)
    monkeypatch.setattr("gymq.stats.files.atomic_write", fail)
    with pytest.raises(UsageError, match=r"run_statistics\.json cannot be written: No space left on device"):
        write_report(rows, results)


def test_failures_count_where_the_rows_are_gone(tmp_path: Path) -> None:
    at = {"agent_ref": {"name": "a"}, "_ng_failure_class": "model_failed"}
    write(tmp_path / "run.jsonl", [result(0, 0, agent_ref={"name": "a"})])
    failed = [(0, 1), (0, 2), (1, 0), (1, 1)]
    write(tmp_path / "run_failures.jsonl", [{"_ng_task_index": t, "_ng_rollout_index": r, **at} for t, r in failed])
    found = read_statistics(RunFiles(tmp_path / "run.jsonl")).profile.snapshot().agents["a"]
    assert (found.rollouts, found.failures) == (1, {"model_failed": 4})


def test_each_failed_attempt_counts_whatever_the_order_of_its_lines(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", [])
    at = {"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}
    attempts = [(2, "judge_failed"), (1, "model_failed")]
    lines = [{**at, "_ng_failure_class": name, "_ng_failure_sequence": sequence} for sequence, name in attempts]
    write(tmp_path / "run_failures.jsonl", lines)
    found = read_statistics(RunFiles(tmp_path / "run.jsonl")).profile.snapshot().agents["a"]
    assert found.failures == {"judge_failed": 1}
    assert found.failed_attempts == {"judge_failed": 1, "model_failed": 1}


def test_a_row_that_is_there_twice_is_named_with_its_line(tmp_path: Path) -> None:
    rows, results = write(tmp_path / "in.jsonl", [*ROWS, ROWS[2]]), write(tmp_path / "run.jsonl", RESULTS)
    with pytest.raises(RowError, match=r"in\.jsonl:7: there is more than one row of rollout \(1, 0\)"):
        write_report(rows, results)


@given(
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-9, 9), st.text())
    )
)
def test_the_files_agree_with_memory_for_any_fields(tmp_path_factory: pytest.TempPathFactory, members: Any) -> None:
    folder = tmp_path_factory.mktemp("profile")
    results = [{**members, **result(0, 0)}]
    written = write_report(write(folder / "in.jsonl", ROWS[:1]), write(folder / "run.jsonl", results))
    assert read(written.reward_profiling) == report(ROWS[:1], results).groups
