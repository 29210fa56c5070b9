"""What a result looks like, and what an error does."""

import asyncio
import json
import pickle
from functools import partial

import aiohttp
import msgspec
import pytest

from gymq.bus import streams
from gymq.bus.discovery import UnservedAgents
from gymq.bus.queue.client import QueueClient
from gymq.data.failure_status import StatusError, status_of
from gymq.execution.loading.registry import find_class
from gymq.ext.nemo_gym.directory import InstanceAddress
from gymq.failures import RETRYABLE
from gymq.protocol.messages import FailureClass
from gymq.runs.stored_runs import Runs
from tests.support.engine import Body, say
from tests.support.environments import Grader
from tests.support.waiting import until
from tests.support.world import Client, World, new_client

from .trainers import nemo_rl_is_infra, trl_masks


def numbers(result: Body) -> set[str]:
    """The top-level members that trainers average."""
    return {name for name, value in result.items() if isinstance(value, bool | int | float)}


@pytest.mark.parametrize("verdict", [{"mask_sample": True}, {"instance_config": {"mask_sample": True, "kept": 1}}])
async def test_a_masked_rollout_says_so_where_each_trainer_looks(client: Client, world: World, verdict: Body) -> None:
    result = await client.result(world.row(verdict=verdict))
    assert result["mask_sample"] is True
    assert result["instance_config"]["mask_sample"] is True
    assert result["instance_config"].get("kept") == verdict.get("instance_config", {}).get("kept")


async def test_other_rollouts_are_not_masked(client: Client, world: World) -> None:
    result = await client.result(world.row())
    assert result["mask_sample"] is False
    assert "instance_config" not in result


def _said(text: str, body: Body) -> Body:
    return say(text)


MCQA = {
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
}


@pytest.mark.parametrize(
    ("name", "members", "answers"),
    [
        ("mcqa", MCQA, ["\\boxed{B}", "\\boxed{A}", "I do not know", ""]),
        ("structured_outputs", {"schema_str": '{"type": "object"}', "schema_type": "json"}, ["{}", "[1", ""]),
    ],
)
async def test_results_of_an_agent_have_the_same_numbers_whatever_the_model_says(
    empty_world: World, name: str, members: Body, answers: list[str]
) -> None:
    world = empty_world
    await world.add_model()
    await world.add_resources("exam", find_class("resources", name)({}))
    await world.add_agent("asker", "exam")
    await world.start_bridge()
    found = set()
    async with new_client(world) as client:
        for text in answers:
            world.engine.turn = partial(_said, text)
            found.add(frozenset(numbers(await client.result(world.row(text, **members)))))
    assert len(found) == 1, found


async def test_bookkeeping_numbers_are_below_one_key(client: Client, world: World) -> None:
    assert numbers(await client.result(world.row())) == {"reward", "mask_sample"}


@pytest.mark.parametrize("mode", ["error", "empty"])
async def test_what_a_row_says_of_an_earlier_result_is_left_out(client: Client, world: World, mode: str) -> None:
    if mode == "empty":
        world.engine.turn = lambda body: (500, {"error": "out of order"})
    row = world.row(reward_components={"style": 5.0}, _ng_failure_class="judge_failed", kept=1)
    result = await client.result(row, **{"Gymq-On-Untrainable": mode})
    assert result["kept"] == 1
    assert not {"reward_components", "_ng_failure_class"} & set(result)


async def test_reward_components_must_add_up_to_the_reward(client: Client, world: World) -> None:
    right = {"reward": 0.75, "reward_components": {"format": 0.25, "answer": 0.5}}
    assert (await client.result(world.row(verdict=right)))["reward_components"] == right["reward_components"]
    for wrong in ({"format": 0.25}, {"format": 0.25, "answer": "0.5"}, [0.75]):
        status, body = await client.run(world.row(verdict={"reward": 0.75, "reward_components": wrong}))
        assert (status, body["error"]["stage"]) == (500, "verify")


ODD_MEMBERS: Body = {
    "nested": {"a": [1, {"b": None}, []], "": {}},
    "unicode ключ": "\U0001f600\u2028",
    "big": 2**53,
    "negative": -(2**53),
    "null": None,
    "float": 0.1,
    "tiny": 5e-324,
    "text": "NaN",
    "_ng_task_index": 12,
    "_ng_rollout_index": 3,
    "_rowidx": 40,
    "_rcp_extra": {"x": 1},
    "skills_ref": {"path": "p"},
    "policy_base_url": "http://127.0.0.1:1/v1",
}


async def test_fields_that_we_do_not_know_come_back_as_they_were(client: Client, world: World) -> None:
    row = world.row(**ODD_MEMBERS, verdict={"from": {"the": ["verifier", None, 2**53]}})
    result = await client.result(row)
    assert {name: result[name] for name in row} == row
    assert result["from"] == {"the": ["verifier", None, 2**53]}


async def test_numbers_keep_their_digits(client: Client, world: World) -> None:
    row = json.dumps(world.row(x=1)).replace('"x": 1', '"x": 1.10e+2, "y": 100000000000000000000').encode()
    async with client.session.post(
        f"{world.head}/run", data=row, headers={"Content-Type": "application/json"}
    ) as answer:
        body = await answer.text()
    assert '"x":1.10e+2' in body
    assert '"y":100000000000000000000' in body


# Failures -------------------------------------------------------------------------------------------------------------

INFRA = 500
DATA = 422


def failing(failure_class: str, *, retryable: bool | None = None) -> Body:
    return {"verdict": {"fails": {"class": failure_class, "retryable": retryable}}}


async def test_a_verifier_that_fails_is_told_by_the_status(client: Client, world: World) -> None:
    for members, status in [
        (failing("component_failed"), INFRA),
        (failing("judge_failed"), INFRA),
        (failing("verifier_failed"), INFRA),
        (failing("verifier_failed", retryable=False), DATA),
        (failing("invalid_task"), DATA),
        (failing("deadline_exceeded"), 504),
        ({"verdict": {"reward": "nonsense"}}, INFRA),
    ]:
        got, body = await client.run(world.row(**members))
        assert got == status, body
        assert nemo_rl_is_infra(got) == (status != DATA)


async def test_an_engine_that_cannot_be_reached_is_infrastructure(empty_world: World) -> None:
    await empty_world.add_model(base_url="http://127.0.0.1:1/v1")
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    await empty_world.start_bridge(rollout_timeout_s=5.0)
    async with new_client(empty_world) as client:
        assert (await client.run(empty_world.row()))[0] in (500, 504)


async def test_a_body_that_is_no_row_is_refused_and_leaves_nothing(client: Client, world: World) -> None:
    for body in [
        b"",
        b"{",
        b"[]",
        b'"row"',
        b"null",
        b"\xff{}",
        b'{"a": NaN}',
        b"{}",
        b'{"responses_create_params": []}',
    ]:
        assert (await client.post("/run", body))[0] == 422, body
        assert await world.queued() == 0
        assert world.bridge is not None
        assert world.bridge.rollouts.num_waiting == 0


async def test_parameters_that_do_not_fit_are_named_and_leave_nothing(client: Client, world: World) -> None:
    for params, member in [
        ({"input": 3}, "input"),
        ({"input": "x", "top_k": 3}, "top_k"),
        ({}, ""),
    ]:
        status, body = await client.run(world.row() | {"responses_create_params": params})
        assert status == 422, params
        where = ".".join(part for part in ("responses_create_params", member) if part)
        assert body["error"]["message"].startswith(f"{where}:")
        assert await world.queued() == 0
        assert not world.engine.requests


async def test_a_rollout_that_an_operator_cancels_is_a_conflict(client: Client, world: World) -> None:
    world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    assert world.bridge is not None
    await QueueClient(world.bus).cancel(world.bridge.rollouts.run)
    assert (await asking)[0] == 409


async def test_a_bridge_that_ends_says_that_it_is_not_there(client: Client, world: World) -> None:
    world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    assert world.bridge is not None
    await world.bridge.__aexit__(None, None, None)
    assert (await asking)[0] == 503
    await until(lambda: world.engine.num_dropped == 1)


def test_every_class_of_failure_has_a_status_that_says_whether_to_try_again() -> None:
    for failure_class in FailureClass:
        for retryable in (True, False):
            status = status_of(failure_class, retryable=retryable)
            assert status in (409, 422, 500, 504)
        if failure_class in RETRYABLE:
            assert nemo_rl_is_infra(status_of(failure_class, retryable=True))


async def test_an_agent_that_nobody_serves_is_infrastructure(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.bridge is not None
    monkeypatch.setattr(world.bridge.rollouts, "_unserved", UnservedAgents(world.bus, 0.0))
    await until(lambda: world.bus.is_stable)
    await streams.ensure_agent(world.js, world.name("gone"))
    directory = world.bridge._context.directory
    directory._by_name[world.name("gone")] = InstanceAddress(world.name("gone"), "agents", "x", "127.0.0.1", 1, {})
    asking = asyncio.create_task(client.run(world.row(agent="gone")))
    await until(lambda: world.bridge is not None and world.bridge.rollouts.num_waiting)
    await world.bridge.rollouts._check_served()
    status, body = await asking
    assert (status, body["error"]["class"]) == (500, "no_worker")


async def test_an_engine_that_hangs_is_answered_for_at_the_deadline(empty_world: World) -> None:
    await empty_world.add_model()
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_agent("asker", "grader")
    await empty_world.start_bridge(rollout_timeout_s=3.0)
    empty_world.engine.turn = lambda body: asyncio.sleep(3600, say("too late"))
    async with new_client(empty_world) as client:
        status, body = await client.run(empty_world.row())
    assert (status, body["error"]["class"]) == (504, "deadline_exceeded")
    await until(lambda: empty_world.engine.num_dropped == 1)


async def test_a_failure_is_no_result_to_any_reader(client: Client, world: World) -> None:
    status, body = await client.run(world.row(**failing("component_failed")))
    assert status == 500
    assert trl_masks(body)
    assert set(body) == {"error"}
    assert set(body["error"]) == {"class", "stage", "message", "task_id", "attempts"}


def test_the_error_survives_pickling() -> None:
    error = StatusError(500, "model_failed", "out of order", stage="model", attempts=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is StatusError
    assert vars(again) == vars(error)
    assert again.message == "out of order"


async def test_a_verdict_that_is_a_failure_is_no_result(client: Client, world: World) -> None:
    row = world.row(verdict={"reward": 0.0, "_ng_failure_class": "judge_failed"})
    status, body = await client.run(row)
    assert (status, body["error"]["class"]) == (500, "judge_failed")
    masked = await client.result(row, **{"Gymq-On-Untrainable": "empty"})
    assert masked["mask_sample"] is True
    assert masked["instance_config"]["mask_sample"] is True


async def test_a_result_with_heartbeats_is_the_same_document(client: Client, world: World) -> None:
    hold = asyncio.Event()

    async def wait(body: Body) -> Body:
        await hold.wait()
        return say("done")

    world.engine.turn = wait
    url = f"{world.head}/run"
    async with client.session.post(url, json=world.row(x=1), headers={"Gymq-Heartbeat": "0.05"}) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        first = await answer.content.readexactly(3)
        hold.set()
        body = first + await answer.content.read()
    assert first == b"   "
    assert json.loads(body)["x"] == msgspec.json.decode(body)["x"] == 1


async def test_a_failure_behind_heartbeats_breaks_the_body_off(client: Client, world: World) -> None:
    hold = asyncio.Event()

    async def wait(body: Body) -> object:
        await hold.wait()
        return 400, {"error": "no"}

    world.engine.turn = wait
    url = f"{world.head}/run"
    async with client.session.post(url, json=world.row(), headers={"Gymq-Heartbeat": "0.05"}) as answer:
        assert answer.status == 200
        await answer.content.readexactly(1)
        hold.set()
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientOSError)):
            await answer.content.read()


async def test_a_failure_before_the_first_heartbeat_still_has_its_status(client: Client, world: World) -> None:
    headers = {"Gymq-Heartbeat": "3000"}
    assert (await client.run(world.row(**failing("invalid_task")), **headers))[0] == 422


async def test_a_heartbeat_that_is_no_time_is_refused(client: Client, world: World) -> None:
    for value in ["", "soon", "-1", "0", "nan", "inf", "1e9"]:
        assert (await client.run(world.row(), **{"Gymq-Heartbeat": value}))[0] == 422, value
        assert await world.queued() == 0


async def test_a_bridge_has_a_run_once_it_is_given_a_row(client: Client, world: World) -> None:
    assert world.bridge is not None
    asked, runs = world.bridge.rollouts, Runs(world.bus)
    assert await runs.record(asked.run) is None
    assert await runs.record(asked.keyed_run) is None
    await client.result(world.row())
    assert await runs.record(asked.run) is not None
    assert await runs.record(asked.keyed_run) is None
    async with client.session.post(
        f"{world.head}/run", json=world.row(), headers={"Idempotency-Key": world.name("key")}
    ) as answer:
        assert answer.status == 200
    assert await runs.record(asked.keyed_run) is not None
