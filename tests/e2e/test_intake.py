"""What anybody publishes to `gym.tasks`, with nothing but a NATS client and JSON."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from gymq.bus import streams
from gymq.protocol import subjects
from gymq.protocol.messages import DeadLetter, VerifiedRollout
from tests.support.waiting import DEADLINE_S, until_answer

from .running_cluster import RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: RunningCluster) -> AsyncIterator[Client]:
    connected = await nats.connect(cluster.url)
    yield connected
    await connected.close()


def submission(run: str, **members: Any) -> dict[str, Any]:
    return {"type": "submission.v1", "run": run, "agent": "asker", "row": row(), **members}


async def until_dead_letter(cluster: RunningCluster, body: bytes) -> list[DeadLetter]:
    """The dead letters about a body, once there is one."""

    async def about_body() -> list[DeadLetter]:
        return [letter for letter in await cluster.dead_letters() if letter.body == body]

    return await until_answer(about_body)


async def test_a_row_published_as_json_becomes_rollouts(cluster: RunningCluster, client: Client, run: str) -> None:
    ack = await client.jetstream().publish("gym.tasks", json.dumps(submission(run, num_repeats=3)).encode())
    found = await cluster.outcomes(run, 3)
    assert sorted(found) == [(ack.seq, 0), (ack.seq, 1), (ack.seq, 2)]
    assert all(isinstance(outcome, VerifiedRollout) and outcome.num_rollouts == 3 for outcome in found.values())


async def test_the_row_reaches_the_outcome_as_it_was(cluster: RunningCluster, client: Client, run: str) -> None:
    content = row("ä ☃", number=1.5, large=2**62, nested={"empty": [], "null": None})
    body = submission(run, row=content, task_index=7)
    await client.jetstream().publish("gym.tasks", json.dumps(body).encode())
    outcome = (await cluster.outcomes(run, 1))[7, 0]
    assert json.loads(outcome.row) == content


async def test_a_row_of_a_deleted_run_is_rolled_out_again(cluster: RunningCluster, client: Client, run: str) -> None:
    for _ in range(2):
        await client.jetstream().publish("gym.tasks", json.dumps(submission(run, task_index=7)).encode())
        assert list(await cluster.outcomes(run, 1)) == [(7, 0)]
        await cluster.until_settled(run)
        await streams.delete_run(cluster.js, run)


async def test_the_agent_may_be_named_in_the_row(cluster: RunningCluster, client: Client, run: str) -> None:
    body = submission(run, row=row(agent_ref={"name": "asker"}))
    del body["agent"]
    await client.jetstream().publish("gym.tasks", json.dumps(body).encode())
    assert len(await cluster.outcomes(run, 1)) == 1


async def test_the_type_may_be_left_out(cluster: RunningCluster, client: Client, run: str) -> None:
    body = submission(run)
    del body["type"]
    await client.jetstream().publish("gym.tasks", json.dumps(body).encode())
    assert len(await cluster.outcomes(run, 1)) == 1


async def test_a_fire_and_forget_publish_is_enough(cluster: RunningCluster, client: Client, run: str) -> None:
    await client.publish("gym.tasks", json.dumps(submission(run)).encode())
    assert len(await cluster.outcomes(run, 1)) == 1


BAD: dict[str, tuple[bytes, str]] = {
    name: (body if isinstance(body, bytes) else json.dumps(body).encode(), said)
    for name, (body, said) in {
        "empty": (b"", "truncated"),
        "no json": (b"{broken", "malformed"),
        "no utf-8": (b'{"type": "submission.v1", "run": "\xff"}', "utf-8"),
        "a list": ([1, 2], "object"),
        "a text": (b' "submission"', "object"),
        "msgpack nonsense": (b"\xc1\xc1\xc1", "malformed"),
        "broken zstd": (b"\x28\xb5\x2f\xfd\x00\x00", "compressed"),
        "another type": (submission("x", type="task.v1"), "type"),
        "no run": ({"type": "submission.v1", "row": row()}, "run"),
        "run that is not a token": (submission("a.b"), "$.run"),
        "run with line break": (submission("a\n"), "$.run"),
        "run that is a number": (submission("x") | {"run": 7}, "$.run"),
        "no row": ({"type": "submission.v1", "run": "x", "agent": "asker"}, "row"),
        "row null": (submission("x", row=None), "row"),
        "row text": (submission("x", row="text"), "row"),
        "row list": (submission("x", row=[row()]), "row"),
        "row without params": (submission("x", row={"a": 1}), "responses_create_params"),
        "params list": (submission("x", row={"responses_create_params": []}), "responses_create_params"),
        "agent that is not a token": (submission("x", agent="a b"), "$.agent"),
        "no agent": ({k: v for k, v in submission("x").items() if k != "agent"}, "agent"),
        "agent_ref that is not a token": (
            {k: v for k, v in submission("x", row=row(agent_ref={"name": "a.b"})).items() if k != "agent"},
            "row.agent_ref.name",
        ),
        "agent_ref that is a text": (submission("x", row=row(agent_ref="asker")), "agent_ref"),
        "agent nobody runs": (submission("x", agent="nobody"), "'nobody'"),
        "no repeats": (submission("x", num_repeats=0), "$.num_repeats"),
        "negative repeats": (submission("x", num_repeats=-1), "$.num_repeats"),
        "half a repeat": (submission("x", num_repeats=1.5), "$.num_repeats"),
        "repeats as text": (submission("x", num_repeats="3"), "$.num_repeats"),
        "too many repeats": (submission("x", num_repeats=10**9), "$.num_repeats"),
        "negative index": (submission("x", task_index=-1), "$.task_index"),
        "huge index": (submission("x", task_index=2**60), "$.task_index"),
        "index beyond 64 bits": (submission("x", task_index=2**70), "task_index"),
        "no time": (submission("x", timeout_s=0), "$.timeout_s"),
        "negative time": (submission("x", timeout_s=-5), "$.timeout_s"),
        "endless time": (submission("x", timeout_s=1e12), "$.timeout_s"),
        "time as text": (submission("x", timeout_s="60"), "$.timeout_s"),
        "unknown field": (submission("x", repeats=3), "repeats"),
        "integer beyond 64 bits": (submission("x", row=row(large=2**70)), "row.large"),
        "half a surrogate": (b'{"type": "submission.v1", "run": "x", "row": {"a": "\\ud800"}}', "not a task"),
        "nested too deeply": (
            b'{"type": "submission.v1", "run": "x", "row": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            "nested",
        ),
    }.items()
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dead_letters(cluster: RunningCluster) -> dict[bytes, list[str]]:
    """The reasons for which bodies were dead_letters."""
    for body, _ in BAD.values():
        await cluster.js.store("gym.tasks", body)
    await cluster.js.store("gym.tasks", b"the last one")
    await until_dead_letter(cluster, b"the last one")
    found: dict[bytes, list[str]] = {}
    for letter in await cluster.dead_letters():
        if letter.subject == "gym.tasks":
            found.setdefault(letter.body, []).append(letter.reason)
    return found


@pytest.mark.parametrize("name", BAD)
async def test_what_is_no_task_is_one_dead_letter_with_a_sentence_that_names_what_is_wrong(
    dead_letters: dict[bytes, list[str]], name: str
) -> None:
    body, said = BAD[name]
    (reason,) = dead_letters[body]
    assert said in reason
    assert "\n" not in reason


async def test_bad_ones_hold_up_nobody(cluster: RunningCluster, client: Client, run: str) -> None:
    for number in range(100):
        await client.publish("gym.tasks", f"{run} {number}".encode())
    await client.publish("gym.tasks", json.dumps(submission(run)).encode())
    assert len(await cluster.outcomes(run, 1)) == 1


async def test_a_submission_that_is_delivered_again_makes_no_second_set_of_tasks(
    cluster: RunningCluster, client: Client, run: str
) -> None:
    before = (await cluster.js.api("STREAM.INFO.TASKS"))["state"]["last_seq"]
    content = row(script={"model_s": 1.0})
    await client.jetstream().publish("gym.tasks", json.dumps(submission(run, row=content, num_repeats=200)).encode())
    async with asyncio.timeout(DEADLINE_S):
        while (await cluster.js.api("STREAM.INFO.TASKS"))["state"]["last_seq"] < before + 50:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    restarts = cluster.child("services").restarts
    cluster.kill("services")
    await cluster.until_restarted("services", restarts)
    intake = {"filter_subject": subjects.SUBMISSION.pattern, "max_ack_pending": 1000}
    await streams.ensure_consumer(cluster.js, streams.TASKS, "intake", intake | {"ack_wait": 500_000_000})
    found = await cluster.outcomes(run, 200)
    await streams.ensure_consumer(cluster.js, streams.TASKS, "intake", intake)
    await cluster.until_settled(run)
    assert {rollout for _, rollout in found} == set(range(200))
    assert len({task for task, _ in found}) == 1
    assert len(await cluster.stored(run)) == 200
    assert set(cluster.calls(run).values()) == {1}


async def test_a_thousand_submissions_at_once_become_a_thousand_rollouts(
    cluster: RunningCluster, client: Client, run: str
) -> None:
    for number in range(1000):
        await client.publish("gym.tasks", json.dumps(submission(run, row=row(f"{number}"))).encode())
    found = await cluster.outcomes(run, 1000)
    texts = {json.loads(outcome.row)["responses_create_params"]["input"] for outcome in found.values()}
    assert texts == {f"{number}" for number in range(1000)}
