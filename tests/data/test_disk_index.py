import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.data.disk_index import DoneRollouts, EarlierRows, FailedAttempts, RunningNumbers, TaskCounts
from gymq.data.rows import MAX_INDEX
from gymq.errors import UsageError

INDEX = st.one_of(st.integers(0, 5), st.integers(0, MAX_INDEX))
KEYS = st.lists(st.tuples(INDEX, INDEX), max_size=50)


@given(KEYS)
def test_a_ledger_is_a_sorted_set(keys: list[tuple[int, int]]) -> None:
    seen: set[tuple[int, int]] = set()
    with DoneRollouts() as done:
        for key in keys:
            assert (key in done) == (key in seen)
            assert done.add(*key) == (key not in seen)
            seen.add(key)
            assert len(done) == len(seen)
        assert list(done) == sorted(seen)


def test_a_full_disk_is_told_in_a_sentence() -> None:
    with DoneRollouts() as done:
        done._database.execute("PRAGMA max_page_count = 3")
        with pytest.raises(UsageError, match="disk is full; SQLITE_TMPDIR may name"):
            any(not done.add(task, 0) for task in range(10_000))


@given(st.lists(st.tuples(INDEX, st.integers(1, 9)), max_size=50))
def test_task_counts_say_how_many_there_were_before(additions: list[tuple[int, int]]) -> None:
    expected: dict[int, int] = {}
    with TaskCounts() as counts:
        for task, rollouts in additions:
            assert counts.add(task, rollouts) == expected.get(task, 0)
            expected[task] = expected.get(task, 0) + rollouts
        assert all(counts[task] == total for task, total in expected.items())
        assert counts[MAX_INDEX - 1] == expected.get(MAX_INDEX - 1, 0)


def test_attempts_are_counted_and_one_terminal_attempt_is_enough() -> None:
    with FailedAttempts() as attempts:
        attempts.add(1, 2, terminal=False)
        attempts.add(1, 2, terminal=True)
        attempts.add(1, 2, terminal=False)
        assert attempts.of(1, 2) == (3, True)
        assert attempts.of(2, 1) == (0, False)


def test_rows_of_an_earlier_start_are_found_wherever_they_are_now() -> None:
    with EarlierRows() as rows:
        for task, rollout, digest in ((0, 0, b"a0"), (0, 1, b"a1"), (1, 0, b"b0")):
            rows.add(task, rollout, digest)
        now = ((0, 0, b"a0"), (0, 2, b"a2"), (2, 0, b"b0"), (3, 7, b"c7"))
        assert [rows.find(*row) for row in now] == [True, False, True, False]
        assert (rows.num_missing, rows.num_moved, rows.grown_to) == (1, 1, 3)
        assert [rows.task_now(*key) for key in ((0, 0), (0, 1), (1, 0))] == [0, None, 2]


def test_running_numbers_are_given_in_order_and_kept() -> None:
    with RunningNumbers() as numbers:
        found = [numbers.number(digest, line) for line, digest in enumerate((b"b", b"a", b"b", b"c", b"a"), 1)]
    assert found == [(0, 1), (1, 2), (0, 1), (2, 4), (1, 2)]
