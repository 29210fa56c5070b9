"""The demo's rows hold what they promise: a right solution, a wrong mistake, four environments."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gymq.config import load
from gymq.execution.loading import registry
from gymq.responses import function_call_output, validate_params
from gymq.testing import Harness, function_call, reply

DEMO = Path(__file__).parents[3] / "examples" / "demo"
ROWS = [json.loads(line) for line in (DEMO / "rows.jsonl").read_text(encoding="utf-8").splitlines()]

AT_LEAST = {
    "mcqa": 60,
    "math_with_judge": 60,
    "example_session_state_mgmt": 50,
    "workplace_assistant": 30,
}


def environment(row: dict[str, Any]) -> str:
    return row["agent_ref"]["name"].removesuffix("_simple_agent")


def rows_of(name: str) -> Iterable[dict[str, Any]]:
    return (row for row in ROWS if environment(row) == name)


async def reward_of(env: Harness, row: dict[str, Any], script: str) -> float:
    """Play a script of the row as an agent would: each call goes to the session, then the verifier decides."""
    session = await env.session(row)
    output: list[Mapping[str, Any] | str] = []
    for turn in json.loads(row["responses_create_params"]["metadata"][script]):
        for action in turn:
            if "text" in action:
                output.append(action["text"])
                continue
            item = function_call(action["call"]["name"], action["call"]["arguments"], f"call_{len(output)}")
            result = await session.call(action["call"]["name"], action["call"]["arguments"])
            assert result.status == 200, result.output
            output += [item, function_call_output(item["call_id"], result.output)]
    return (await session.verify(row, reply(*output))).reward


def test_there_are_enough_rows_of_each_environment():
    counts = Counter(map(environment, ROWS))
    assert counts.keys() == AT_LEAST.keys()
    assert all(counts[name] >= least for name, least in AT_LEAST.items())
    assert len(ROWS) >= 200


def test_no_prompt_occurs_twice():
    prompts = [json.dumps(row["responses_create_params"]["input"]) for row in ROWS]
    assert len(set(prompts)) == len(prompts)


def test_every_row_can_be_sent_to_a_model():
    for row in ROWS:
        params = validate_params(row["responses_create_params"])
        assert all(len(value) <= 512 for value in params["metadata"].values())


def test_every_tool_that_a_script_calls_is_offered():
    for row in ROWS:
        offered = {tool["name"] for tool in row["responses_create_params"].get("tools", [])}
        scripts = map(json.loads, row["responses_create_params"]["metadata"].values())
        called = {
            action["call"]["name"] for script in scripts for turn in script for action in turn if "call" in action
        }
        assert called <= offered


@pytest.mark.parametrize("name", AT_LEAST)
async def test_the_solution_pays_1_and_the_mistake_0(name):
    async with Harness(registry.find_class("resources", name)) as env:
        for row in rows_of(name):
            assert await reward_of(env, row, "simulated_solution") == 1.0, row
            assert await reward_of(env, row, "simulated_mistake") == 0.0, row


def test_the_script_makes_exactly_these_rows(tmp_path):
    made = tmp_path / "rows.jsonl"
    subprocess.run([sys.executable, str(DEMO / "make_rows.py"), "--output", str(made)], check=True, capture_output=True)
    assert made.read_bytes() == (DEMO / "rows.jsonl").read_bytes()


def test_the_configuration_has_every_agent_that_a_row_names():
    config = load([DEMO / "config.yaml"], env_yaml=None)
    agents = {instance.name for instance in config.instances if instance.kind == "agents"}
    assert {row["agent_ref"]["name"] for row in ROWS} <= agents


def test_the_configuration_fits_its_workers():
    for instance in load([DEMO / "config.yaml"], env_yaml=None).instances:
        worker = registry.find_class(instance.kind, instance.implementation)
        worker(instance.options, name=instance.name)
