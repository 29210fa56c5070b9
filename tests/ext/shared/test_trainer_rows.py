"""A row in the column of a trainer's data set, or why there is none."""

from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.shared.trainer_rows import row_of_text


def test_a_row_that_cannot_be_used_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"^here \(a\.jsonl:3\): the row has no prompt: its fields are answer$"):
        row_of_text('{"answer": 1, "_ng_source": "a.jsonl:3"}', "here")


@pytest.mark.parametrize("text", [None, "no JSON", "[]"])
def test_a_column_without_a_row_is_refused(text: Any) -> None:
    with pytest.raises(UsageError, match=r"^here.*the data set needs the column `row`"):
        row_of_text(text, "here")
