"""Statistics of a run: the reward profile and a worker's aggregate."""

from typing import Any

import pytest

from gymq.data.rows import RowError
from tests.support.reports import report

from ..refused import Refused


async def run(case_input: dict[str, Any]) -> dict[str, Any]:
    operations = {"profile": _profile, "aggregate": _aggregate}
    try:
        return operations[case_input["op"]](case_input)
    except RowError as error:
        raise Refused(str(error)) from None


def _profile(case_input: dict[str, Any]) -> dict[str, Any]:
    found = report(case_input["rows"], case_input["results"], case_input.get("allow_partial", False))
    return {"groups": found.groups, "agents": found.agents}


def _aggregate(case_input: dict[str, Any]) -> dict[str, Any]:
    aggregate = pytest.importorskip("gymq.ext.nemo_gym.aggregate").aggregate
    found: dict[str, Any] = aggregate(case_input["verify_responses"])._asdict()
    return found
