"""Acceptance A14, A23, A26 and A30: what trainers use of us in Python."""

import asyncio
import gc
import inspect
import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import gymq.bridge
from gymq.bridge import Place
from gymq.bridge.client import RowFailed, run_examples
from gymq.bridge.records import NotTrainable, Record, to_nemo_rl, to_openrlhf, to_trl, to_verl
from gymq.bridge.stack import Stack, StackFailed
from gymq.server.address import free_port

from .engine import Body, say
from .world import Client, World

EXAMPLE = json.loads(Path("workers/resources/mcqa/data/example.jsonl").read_text().splitlines()[0])
DROP_IN = Path(gymq.bridge.__file__).parent / "drop_in"


async def test_a14_results_arrive_in_the_order_of_their_completion_with_the_callers_own_rows(
    client: Client, world: World
) -> None:
    hold = asyncio.Event()

    async def turn(body: Body) -> Body:
        if "slow" in json.dumps(body["messages"]):
            await hold.wait()
        return say("done")

    world.engine.turn = turn
    rows = [world.row("slow" if number == 0 else "quick", _rowidx=number) for number in range(8)]
    given = run_examples(world.head, rows)
    assert isinstance(given, Iterator)
    assert not isinstance(given, AsyncIterator)
    arrived = []
    for awaitable in given:
        assert inspect.isawaitable(awaitable)
        if len(arrived) == 7:
            hold.set()
        row, result = await awaitable
        assert result["reward"] == 1.0
        arrived.append(row)
    assert arrived[-1] is rows[0]
    assert sorted(map(id, arrived)) == sorted(map(id, rows))


async def test_a14_a_semaphore_limits_the_rows_in_flight(client: Client, world: World) -> None:
    running, most = 0, 0

    async def turn(body: Body) -> Body:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return say("done")

    world.engine.turn = turn
    limit = asyncio.Semaphore(2)
    for awaitable in run_examples(world.head, [world.row(str(number)) for number in range(12)], limit=limit):
        await awaitable
    assert most <= 2


async def test_a23_a_poison_row_costs_no_sibling(client: Client, world: World) -> None:
    rows = [world.row(str(number), _rowidx=number) for number in range(16)]
    rows[5]["verdict"] = {"fails": {"class": "component_failed"}}
    results: list[Body] = []
    failures: list[RowFailed] = []
    for awaitable in run_examples(world.head, rows):
        try:
            results.append((await awaitable)[0])
        except RowFailed as failed:
            failures.append(failed)
    assert [row["_rowidx"] for row in sorted(results, key=lambda row: row["_rowidx"])] == [
        number for number in range(16) if number != 5
    ]
    (failed,) = failures
    assert failed.status == 500
    assert json.loads(failed.response_content)["error"]["class"] == "component_failed"
    before = len(world.engine.requests)
    del rows[5]["verdict"]
    (again,) = list(run_examples(world.head, [rows[5]]))
    assert (await again)[0] is rows[5]
    assert len(world.engine.requests) == before + 1


async def test_a23_who_stops_at_the_first_failure_is_not_warned_of_the_others(
    client: Client, world: World, recwarn: pytest.WarningsRecorder
) -> None:
    given = run_examples(world.head, [world.row(verdict={"fails": {"class": "invalid_task"}})] * 3)
    with pytest.raises(RowFailed):
        await next(given)
    del given
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


async def test_a20_what_a_row_raises_survives_pickling(client: Client, world: World) -> None:
    (awaitable,) = run_examples(world.head, [world.row(verdict={"fails": {"class": "invalid_task"}})])
    with pytest.raises(RowFailed) as caught:
        await awaitable
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.status, again.response_content) == (caught.value.status, caught.value.response_content)
    assert again.status == 422


async def test_a_bridge_that_is_not_there_fails_every_row(client: Client, world: World) -> None:
    (awaitable,) = run_examples("http://127.0.0.1:1", [world.row()])
    with pytest.raises(RowFailed, match="no answer"):
        await awaitable


# Records --------------------------------------------------------------------------------------------------------------


def result_of(turns: int, **members: Any) -> Body:
    """A rollout of so many turns: turn i generates [100 + i, 2] and sees [200 + i] before it."""
    output: list[Body] = []
    seen = [1, 7]
    for turn in range(turns):
        prompt = seen if turn == 0 else [*seen, 200 + turn]
        generation = [100 + turn, 2]
        output.append({"type": "reasoning", "summary": []})
        output.append(
            {
                "type": "message",
                "prompt_token_ids": prompt,
                "generation_token_ids": generation,
                "generation_log_probs": [-0.25, -0.5 - turn],
                "routed_experts": f"nrlre1:turn{turn}",
            }
        )
        output.append({"type": "function_call_output", "output": "x"})
        seen = prompt + generation
    return {"reward": 0.5, "response": {"output": output}, "responses_create_params": {"input": ""}, **members}


GOLDEN_IDS = {
    1: [100, 2],
    2: [100, 2, 201, 101, 2],
    7: [100, 2, 201, 101, 2, 202, 102, 2, 203, 103, 2, 204, 104, 2, 205, 105, 2, 206, 106, 2],
}
GOLDEN_MASK = {1: [1, 1], 2: [1, 1, 0, 1, 1], 7: [1, 1] + [0, 1, 1] * 6}
GOLDEN_LOG_PROBS = {
    1: [-0.25, -0.5],
    2: [-0.25, -0.5, 0.0, -0.25, -1.5],
    7: [-0.25, -0.5] + [value for turn in range(1, 7) for value in (0.0, -0.25, -0.5 - turn)],
}


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a26_verl_gets_its_members(turns: int) -> None:
    converted = to_verl(Record.of(result_of(turns)))
    assert converted["prompt_ids"] == [1, 7]
    assert converted["response_ids"] == GOLDEN_IDS[turns]
    assert converted["response_mask"] == GOLDEN_MASK[turns]
    assert converted["response_logprobs"] == GOLDEN_LOG_PROBS[turns]
    assert (converted["reward_score"], converted["num_turns"]) == (0.5, turns)
    assert converted["routed_experts"] == f"nrlre1:turn{turns - 1}"


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a26_trl_gets_its_members(turns: int) -> None:
    assert to_trl(Record.of(result_of(turns))) == {
        "prompt_ids": [1, 7],
        "completion_ids": GOLDEN_IDS[turns],
        "env_mask": GOLDEN_MASK[turns],
        "logprobs": GOLDEN_LOG_PROBS[turns],
        "env_reward": 0.5,
        "num_turns": turns,
    }


def test_a26_nemo_rl_gets_its_message_log() -> None:
    converted = to_nemo_rl(Record.of(result_of(2, reward_components={"a": 0.5}, mask_sample=True)))
    assert converted["message_log"] == [
        {"role": "user", "content": "", "token_ids": [1, 7]},
        {"role": "assistant", "content": "", "token_ids": [100, 2], "generation_logprobs": [-0.25, -0.5]},
        {"role": "user", "content": "", "token_ids": [201]},
        {"role": "assistant", "content": "", "token_ids": [101, 2], "generation_logprobs": [-0.25, -1.5]},
    ]
    assert converted["input_message_log"] == converted["message_log"][:1]
    assert converted["reward_components"] == {"a": 0.5}
    assert converted["mask_sample"] is True
    assert converted["routed_experts"] == "nrlre1:turn1"
    assert len(to_nemo_rl(Record.of(result_of(7)))["message_log"]) == 14
    assert len(to_nemo_rl(Record.of(result_of(1)))["message_log"]) == 2


@pytest.mark.parametrize(("turns", "ranges"), [(1, [(2, 4)]), (2, [(2, 4), (5, 7)])])
def test_a26_openrlhf_gets_its_members(turns: int, ranges: list[tuple[int, int]]) -> None:
    converted = to_openrlhf(Record.of(result_of(turns)), prompt="p", label="l")
    assert converted["observation_tokens"] == [1, 7, *GOLDEN_IDS[turns]]
    assert converted["action_ranges"] == ranges
    assert converted["rollout_log_probs"] == [0.0, 0.0, *GOLDEN_LOG_PROBS[turns]]
    assert (converted["reward"], converted["scores"], converted["truncated"]) == (0.5, 0.5, False)
    assert (converted["prompt"], converted["label"]) == ("p", "l")


def test_a26_a_rollout_that_was_cut_short_says_so() -> None:
    result = result_of(1)
    result["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    assert to_openrlhf(Record.of(result))["truncated"] is True


@pytest.mark.parametrize("spoil", ["no tokens", "broken chain"])
def test_a26_what_cannot_be_trained_on_is_refused(spoil: str) -> None:
    result = result_of(2)
    for item in result["response"]["output"]:
        if spoil == "no tokens":
            item.pop("generation_token_ids", None)
        elif "prompt_token_ids" in item:
            item["prompt_token_ids"] = item["prompt_token_ids"][-1:]
    with pytest.raises(NotTrainable):
        Record.of(result)


# The drop-in ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def drop_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(DROP_IN))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_gym"]:
        del sys.modules[name]


def config(port: int) -> Any:
    return OmegaConf.create(
        {
            "config_paths": [
                "workers/resources/mcqa/config.yaml",
                "workers/models/simulated_model/config.yaml",
            ],
            "policy_model": {"responses_api_models": {"simulated_model": {"token_ids": True}}},
            "policy_base_url": ["http://127.0.0.1:1/v1"],
            "policy_api_key": "dummy_key",
            "default_host": "127.0.0.1",
            "head_server": {"host": "0.0.0.0", "port": port},
            "unknown_key": 3,
        }
    )


async def test_a30_a_trainer_starts_uses_looks_after_and_stops_us_under_the_names_it_knows(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig

    assert HEAD_SERVER_KEY_NAME == "head_server"
    port = free_port("127.0.0.1")
    helper = RunHelper()
    parser_config = GlobalConfigDictParserConfig(
        dotenv_path=None, initial_global_config_dict=config(port), skip_load_from_cli=True
    )
    await asyncio.to_thread(helper.start, global_config_dict_parser_config=parser_config)
    try:
        await asyncio.to_thread(helper.poll)
        rows = [{**EXAMPLE, "_rowidx": number} for number in range(3)]
        head = BaseServerConfig(host="0.0.0.0", port=port)
        found = RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head)
        assert sorted([(await awaitable)[0]["_rowidx"] for awaitable in found]) == [0, 1, 2]
    finally:
        await asyncio.to_thread(helper.shutdown)
        await asyncio.to_thread(helper.shutdown)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))


def test_a30_a_trainer_is_told_what_has_died(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=config(free_port("127.0.0.1"))))
    try:
        process = helper._stack._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(StackFailed, match="gymq up"):
            helper.poll()
    finally:
        helper.shutdown()


def test_a30_a_configuration_that_does_not_do_is_told(drop_in: None) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper

    wrong = OmegaConf.create({"config_paths": ["no/such/file.yaml"]})
    with pytest.raises(StackFailed, match=r"no/such/file\.yaml"):
        RunHelper().start(GlobalConfigDictParserConfig(initial_global_config_dict=wrong))


def test_a30_nothing_was_started_in_this_process(drop_in: None) -> None:
    from nemo_gym.cli import RunHelper

    with pytest.raises(RuntimeError, match="start"):
        RunHelper().poll()


async def test_a30_an_instance_that_nobody_serves_is_named(client: Client, world: World) -> None:
    assert world.bridge is not None
    stack = Stack({"head_server": {"port": int(world.head.rpartition(":")[2])}})
    stack._process = await asyncio.to_thread(_sleeper)
    try:
        await asyncio.to_thread(stack.check)
        directory = world.bridge._context.directory
        directory._by_name["gone"] = Place("gone", "resources", "x", "127.0.0.1", 1, {})
        with pytest.raises(StackFailed, match="resources_servers gone"):
            await asyncio.to_thread(stack.check)
    finally:
        await asyncio.to_thread(stack.stop)


def _sleeper() -> Any:
    """A process that only lives."""
    import subprocess

    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
