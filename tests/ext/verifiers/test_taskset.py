"""Environments of gymq as a taskset of verifiers, evaluated by verifiers' own command in a process of its own."""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gymq.data.rows import RowError
from gymq.errors import UsageError
from gymq.ext.rollout_files.files import rollout_lines
from gymq.ext.verifiers.traces import EPISODES
from gymq.protocol.tokens import to_json
from gymq.testing import function_call, reply
from tests.support.compatibility import record

Row = dict[str, Any]
TASKSET = Path(__file__).parents[3] / "examples" / "trainers" / "prime_rl"
COUNTER = "example_session_state_mgmt"
ADD = {
    "type": "function",
    "name": "increment_counter",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
    "strict": False,
}


def has_taskset_interface() -> bool:
    try:
        return importlib.util.find_spec("verifiers.v1") is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_taskset_interface(), reason="needs verifiers 0.4: make test-in NAME=verifiers")


def row(start: int, expected: int, **fields: Any) -> Row:
    asked = [{"role": "user", "content": f"Add {expected - start} to the counter."}]
    params = {"input": asked, "tools": [ADD]}
    return {"responses_create_params": params, "initial_count": start, "expected_count": expected, **fields}


async def adds(params: Row) -> Row:
    """Do what is asked, except for 13: that is added twice."""
    last = params["input"][-1]
    if last.get("type") == "function_call_output":
        calls = [item for item in params["input"] if item.get("type") == "function_call"]
        if json.loads(calls[0]["arguments"])["count"] != 13 or len(calls) == 2:
            return reply("Done.")
    amount = int(params["input"][0]["content"].split()[1])
    return reply("I add.", function_call("increment_counter", {"count": amount}))


async def evaluated(folder: Path, rows: list[Row], answer: Callable[[Row], Awaitable[Row]], *options: str) -> list[Row]:
    """The episodes that `vf-eval` stores."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    gateways = pytest.importorskip("gymq.ext.gateway")
    async with gateways.Gateway() as gateway, gateway.admit("policy", answer) as admission:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("vf-eval")),
            *("gymq_env", "--env.taskset.rows", "rows.jsonl", "--env.taskset.environment", COUNTER),
            *("--client.base-url", admission.openai_url, "--client.api-key-var", "POLICY_KEY", "-m", "policy"),
            *("--no-push", "--no-rich", "-o", "out", "--run.dir", "run", *options),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TASKSET), "POLICY_KEY": admission.api_key},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()[-3000:]
    return [json.loads(line) for line in (folder / "out" / "run" / "traces.jsonl").read_text().splitlines()]


async def test_tools_state_and_reward_are_those_of_the_environment(tmp_path: Path) -> None:
    rows = [row(1, 4), row(0, 13), row(5, 6)]
    episodes = await evaluated(tmp_path, rows, adds, "-r", "2")
    assert len(episodes) == 6
    by_task: dict[int, list[Row]] = {}
    for episode in episodes:
        (trace,) = episode["traces"]
        assert (episode["ok"], trace["ok"]) == (True, True)
        by_task.setdefault(trace["task"]["data"]["idx"], []).append(trace)
    rewards = {task: [trace["rewards"]["verdict"]["score"] for trace in traces] for task, traces in by_task.items()}
    assert rewards == {0: [1.0, 1.0], 1: [0.0, 0.0], 2: [1.0, 1.0]}
    trace = by_task[0][0]
    # One path: no turn of the conversation is a branch.
    assert [node["message"]["role"] for node in trace["nodes"]] == ["user", "assistant", "tool", "assistant"]
    assert [node.get("parent") for node in trace["nodes"]] == [None, 0, 1, 2]
    # What verifiers stores is read here, with its tools and rewards.
    found = [json.loads(line) for line in rollout_lines(tmp_path / "out" / "run" / "traces.jsonl")]
    assert sorted((one["_ng_task_index"], one["_ng_rollout_index"], one["reward"]) for one in found) == [
        (task, number, reward) for task, of_it in sorted(rewards.items()) for number, reward in enumerate(of_it)
    ]
    first = next(one for one in found if one["_ng_task_index"] == 0)
    assert [item["type"] for item in first["response"]["output"]] == [
        *("message", "function_call", "function_call_output", "message"),
    ]
    assert first["expected_count"] == 4
    record(
        "verifiers: environments of gymq as a taskset",
        "0.4.0",
        "its command `vf-eval`",
        "in its process: tools, state and reward; its `traces.jsonl` is read",
    )


async def test_a_row_without_a_verdict_has_no_reward_and_a_limit_of_turns_ends_with_one(tmp_path: Path) -> None:
    rows = [row(0, 13), {**row(0, 1), "expected_count": "many"}]
    one, other = sorted(
        await evaluated(tmp_path, rows, adds, "--env.agent.max-turns", "1"),
        key=lambda episode: episode["traces"][0]["task"]["data"]["idx"],
    )
    (trace,) = one["traces"]
    assert (trace["ok"], trace["stop_condition"]) == (True, "max_turns")
    assert trace["rewards"]["verdict"]["score"] == 1.0  # 13 was added once when the limit came
    (trace,) = other["traces"]
    assert (other["ok"], trace["ok"]) == (False, False)
    assert "invalid_task" in trace["errors"][-1]["message"]
    assert not any(trace.get("rewards", {}).values())


def test_what_is_missing_or_no_row_is_named(tmp_path: Path) -> None:
    from gymq.ext.verifiers.taskset import EnvironmentTaskset, EnvironmentTasksetConfig

    def load(**options: Any) -> list[Any]:
        return list(EnvironmentTaskset(EnvironmentTasksetConfig(id="gymq_env", **options)).load())

    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row(0, 1)) + '\n{"responses_create_params": {}}\n')
    (tmp_path / "rows.csv").write_text("start\n3\n")
    with pytest.raises(RowError, match=r"rows.csv:1: the row has no prompt: its fields are start"):
        load(rows=tmp_path / "rows.csv", environment=COUNTER)
    with pytest.raises(UsageError, match=r"the taskset needs `environment`: --env\.taskset\.environment"):
        load(rows=rows)
    with pytest.raises(RowError, match=r"rows.jsonl:2: responses_create_params: Object missing required field `input`"):
        load(rows=rows, environment=COUNTER)


def test_an_exported_run_is_read_by_verifiers_itself(tmp_path: Path) -> None:
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.state import State
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import Trace
    from verifiers.v1.utils.trace_store import read_episodes

    rollout = pytest.importorskip("tests.ext.formats.test_foreign").rollout
    assert EPISODES.write is not None
    (tmp_path / "traces.jsonl").write_bytes(to_json(EPISODES.write(rollout(2, 0, 0.5))) + b"\n")
    (episode,) = read_episodes(tmp_path, Trace[WireTaskData, State, WireAgentConfig])
    (trace,) = episode.traces
    assert (episode.ok, trace.ok, trace.reward, trace.metrics) == (True, True, 0.5, {"found": 1.0, "distance": 0.5})
    (branch,) = trace.branches
    assert (branch.token_ids, branch.sampled_mask) == ([1, 2, 3, 4], [False, False, True, True])
    assert branch.logprobs == [0.0, 0.0, -0.5, -0.25]
    assert trace.last_reply == "On the desk."
    assert json.loads(trace.task.data.model_extra["row"])["answer"] == "desk"
    record("verifiers: `traces.jsonl`", "0.4.0", "its package, its reader", "written, read by it, and its own read")
