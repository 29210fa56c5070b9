"""Recorded cases: what each conversion must give for an input."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gymq import responses
from gymq.ext.conversion.from_chat import chat_choice_to_items
from gymq.ext.conversion.to_chat import responses_to_chat

CASES = Path(__file__).parents[2] / "cases"


def cases(name: str) -> list[Any]:
    lines = (CASES / f"core_{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


def comparable(value: Any) -> Any:
    """A null member counts as absent, random ids are all the same, floats agree to nine digits."""
    if isinstance(value, dict):
        return {name: comparable(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [comparable(member) for member in value]
    if isinstance(value, str):
        return re.sub(r"^(rs|msg|resp)_[0-9a-f]{32}$", r"<\1_*>", value)
    return pytest.approx(value, rel=1e-9, abs=0) if isinstance(value, float) else value


@pytest.mark.parametrize("case", cases("responses_to_chat"))
def test_request_becomes_the_recorded_chat_request(case: dict[str, Any]) -> None:
    def convert() -> dict[str, Any]:
        params = responses.validate_params(case["input"]["request"])
        return responses_to_chat(params, token_ids=case["input"]["options"]["return_token_id_information"])

    if "error" in case["expect"]:
        with pytest.raises(responses.InvalidRequest):
            convert()
    else:
        assert comparable({"chat_request": convert()}) == comparable(case["expect"])


@pytest.mark.parametrize("case", cases("chat_to_responses"))
def test_choice_becomes_the_recorded_items(case: dict[str, Any]) -> None:
    options = case["input"]["options"]
    items = chat_choice_to_items(
        case["input"]["choice"],
        split_reasoning=options["uses_reasoning_parser"],
        token_ids=options["return_token_id_information"],
    )

    assert comparable({"output": items}) == comparable(case["expect"])
