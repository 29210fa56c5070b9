"""The page about compatibility has a row for each result that a test records, and no other."""

import re
from pathlib import Path

from tests.support.compatibility import rows

TESTS = Path(__file__).parents[1]
_RECORDED = re.compile(r"record\(\s*\"([^\"]+)\"")


def test_every_row_is_recorded_by_a_test_and_every_record_has_a_row() -> None:
    recorded = {what for file in TESTS.rglob("test_*.py") for what in _RECORDED.findall(file.read_text())}
    recorded.discard("([^")
    assert {row.what for row in rows()} == recorded
