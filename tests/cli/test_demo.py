"""`gymq demo`: from an installation to a table and rollouts to look at."""

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .conftest import Command


def environments(folder: Path) -> Counter[str]:
    lines = (folder / "runs" / "demo" / "demo.jsonl").read_text().splitlines()
    return Counter(json.loads(line)["agent_ref"]["name"].removesuffix("_simple_agent") for line in lines)


def test_the_demo_ends_with_a_table_and_says_where_to_look(gymq: Command, here: Path) -> None:
    called = gymq("demo", "--num-repeats", "1")
    assert called.status == 0, called.err
    assert "policy: policy_model = simulated_model" in called.out
    assert "gymq view, at http" in called.out
    found = environments(here)
    assert found.keys() == {"mcqa", "math_with_judge", "example_session_state_mgmt", "workplace_assistant"}
    assert found.total() == 225


@pytest.mark.nightly
def test_an_environment_whose_package_is_missing_is_left_out(
    gymq: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without_math(name: str, package: str | None = None) -> Any:
        return None if name == "math_verify" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_math)
    called = gymq("demo", "--num-repeats", "1")
    assert called.status == 0, called.err
    assert "math_with_judge is left out of the demo: math_verify is not installed" in called.err
    assert "pip install 'gymq[resources]'" in called.err
    assert environments(here).keys() == {"mcqa", "example_session_state_mgmt", "workplace_assistant"}
