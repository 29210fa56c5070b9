"""The policy versions on the tokens of a reply."""

from typing import Any

import pytest

from gymq.protocol.packing import label
from gymq.protocol.tokens import VERSIONS_FIELD


def sampled(**members: Any) -> dict[str, Any]:
    return {"output": [{"generation_token_ids": [1, 2, 3], **members}]}


@pytest.mark.parametrize(
    ("versions", "stretches"), [(["1"], [["1", 3]]), (["1", "2"], [[None, 3]]), ([""], None), ([], None)]
)
def test_tokens_of_a_call_in_which_the_weights_changed_have_no_version(versions: list[str], stretches: Any) -> None:
    response = sampled()
    assert label(response, versions) == versions
    assert response["output"][0].get(VERSIONS_FIELD) == stretches


@pytest.mark.parametrize("given", [[["1", 4]], [["1", 4], ["2", -1]], [["1", 3], ["2", 0]], [[1, 3]], []])
def test_versions_that_do_not_cover_the_tokens_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=VERSIONS_FIELD):
        label(sampled(**{VERSIONS_FIELD: given}), ["0"])
