"""The page about compatibility has a row for each result that a test records, and no other."""

import re
from pathlib import Path

from tests.support.compatibility import rows

ROOT = Path(__file__).parents[2]
_RECORDED = re.compile(r"record\(\s*\"([^\"]+)\"")


def test_every_row_is_recorded_by_a_test_and_every_record_has_a_row() -> None:
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("workers/*/*/tests/test_*.py")]
    recorded = {what for file in files for what in _RECORDED.findall(file.read_text())}
    recorded.discard("([^")
    assert {row.what for row in rows()} == recorded
