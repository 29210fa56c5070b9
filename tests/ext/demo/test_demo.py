"""`gymq demo`: from an installation to a table and rollouts to look at."""

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gymq.cli.shared.parameters import CollectArguments
from tests.cli.conftest import Command


def environments(folder: Path) -> Counter[str]:
    lines = (folder / "runs" / "demo" / "demo.jsonl").read_text().splitlines()
    return Counter(json.loads(line)["agent_ref"]["name"].removesuffix("_simple_agent") for line in lines)


def run_of(folder: Path) -> str:
    run: str = json.loads((folder / "runs" / "demo" / "demo_run.json").read_text())["run"]
    return run


def test_the_demo_ends_with_a_table_and_says_where_to_look(
    gymq: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = gymq("demo", "--num-repeats", "1")
    assert called.status == 0, called.err
    assert "policy: policy_model = simulated_model" in called.out
    assert "in a browser     gymq view\n" in called.out
    found = environments(here)
    assert found.keys() == {"mcqa", "math_with_judge", "example_session_state_mgmt", "workplace_assistant"}
    assert found.total() == 225

    # A demo that was interrupted looks like one that lost its last lines.
    output = here / "runs" / "demo" / "demo.jsonl"
    output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:-5]))
    run = run_of(here)
    again = gymq("demo", "--num-repeats", "1")
    assert (again.status, run_of(here)) == (0, run), again.err
    assert environments(here) == found

    replaced: list[bool] = []

    def collect(*_: str, options: CollectArguments) -> int:
        replaced.append(options.overwrite)
        return 0

    monkeypatch.setattr("gymq.cli.collect.collect", collect)
    gymq("demo", "--num-repeats", "1")
    output.write_bytes(output.read_bytes()[:-5])
    gymq("demo", "--num-repeats", "1")
    gymq("demo", "--num-repeats", "2")
    assert replaced == [True, False, True]


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
