"""Who is there: the services protocol of NATS, as its own tools speak it."""

import asyncio
import json
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus
from gymq.bus.discovery import ServiceListing, WorkerSearch, find_workers, is_running
from gymq.protocol.versions import SPOKEN
from tests.support.waiting import DEADLINE_S, until_answer


async def listed(bus: Bus, name: str, worker: str = "w1", **stats: Any) -> ServiceListing:
    listing = ServiceListing(
        bus,
        name=name,
        worker=worker,
        kind="resources",
        implementation="mcqa",
        subjects=[f"gym.seed.{name}", f"gym.resources.{name}"],
        stats=lambda: dict(stats),
    )
    await listing.start()
    await bus.flush()
    return listing


@pytest.mark.parametrize("verb", ["PING", "INFO", "STATS"])
@pytest.mark.parametrize("suffix", ["", ".{name}", ".{name}.w1"])
async def test_each_question_of_the_protocol_is_answered(
    bus: Bus, shared_url: str, run: str, verb: str, suffix: str
) -> None:
    await listed(bus, run)
    async with await nats.connect(shared_url) as client:
        answer = await client.request(f"$SRV.{verb}{suffix.format(name=run)}", timeout=DEADLINE_S)
    body = json.loads(answer.data)
    assert body["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
    assert (body["name"], body["id"]) == (run, "w1")
    assert body["metadata"] == {"kind": "resources", "implementation": "mcqa", **SPOKEN.stated()}


async def found_workers(bus: Bus, run: str, count: int) -> list[dict[str, Any]]:
    """The workers of a name, when so many have answered in time."""

    async def look() -> list[dict[str, Any]]:
        return [worker for worker in await find_workers(bus, wait_s=0.3) if worker["name"] == run]

    return await until_answer(look, lambda found: len(found) >= count)


async def test_statistics_are_shown_for_the_first_endpoint(bus: Bus, run: str) -> None:
    await listed(bus, run, num_requests=4, num_errors=1, processing_s=2.0, sessions=3)
    (found,) = await found_workers(bus, run, 1)
    first, second = found["endpoints"]
    assert (first["num_requests"], first["num_errors"], first["data"]) == (4, 1, {"sessions": 3})
    assert (first["processing_time"], first["average_processing_time"]) == (2_000_000_000, 500_000_000)
    assert second["subject"] == f"gym.resources.{run}"


async def test_a_look_ends_when_all_expected_workers_have_answered(bus: Bus, other_bus: Bus, run: str) -> None:
    for worker in ("w1", "w2"):
        await listed(other_bus, run, worker)
    with WorkerSearch(bus, run) as search:
        for _ in range(2):
            found = await asyncio.wait_for(search.ask(wait_s=3600.0, expected=["w1", "w2"]), DEADLINE_S)
            assert [worker["id"] for worker in found] == ["w1", "w2"]
        assert len(await search.ask(wait_s=0.3, expected=["w1", "gone"])) == 2


async def test_an_answer_to_an_earlier_question_counts_and_the_newest_of_a_worker_is_kept(
    bus: Bus, other_bus: Bus, run: str
) -> None:
    counts = iter(range(100))
    listing = ServiceListing(
        other_bus,
        name=run,
        worker="w1",
        kind="resources",
        implementation="mcqa",
        subjects=[f"gym.seed.{run}"],
        stats=lambda: {"asked": next(counts)},
    )
    await listing.start()
    await other_bus.flush()
    with WorkerSearch(bus, run) as search:
        await search.ask(wait_s=0.0)  # too short for any answer
        (found,) = await until_answer(lambda: search.ask(wait_s=0.0), lambda found: len(found) == 1)
        first = found["endpoints"][0]["data"]["asked"]
        (found,) = await search.ask(wait_s=DEADLINE_S, expected=["w1"])
        assert found["endpoints"][0]["data"]["asked"] >= first


async def test_all_workers_are_found_in_order(bus: Bus, other_bus: Bus, run: str) -> None:
    for worker in ("w2", "w1", "w3"):
        await listed(other_bus, run, worker)
    assert [worker["id"] for worker in await found_workers(bus, run, 3)] == ["w1", "w2", "w3"]


@pytest.mark.parametrize("reply", ["gym.tasks", "x", "_INBOX"])
async def test_a_question_that_wants_its_answer_elsewhere_is_ignored(bus: Bus, run: str, reply: str) -> None:
    await listed(bus, run)
    spied = []

    async def spy(message: Msg) -> None:
        spied.append(message)

    watching = await bus.subscribe(reply, spy)
    await bus.publish(f"$SRV.PING.{run}", b"", reply=reply)
    await bus.request(f"$SRV.PING.{run}", b"", timeout_s=20)
    await bus.unsubscribe(watching)
    assert not spied


async def test_answers_that_are_none_are_passed_over(bus: Bus, other_bus: Bus, run: str) -> None:
    junk = [b"", b"x", b"[]", b"{}", b'{"name": 1, "id": 2}', b'{"name": "x"}', b"[" * 10_000]

    async def impostor(message: Msg) -> None:
        for body in junk:
            await other_bus.publish(message.reply, body)

    subscription = await other_bus.subscribe("$SRV.STATS", impostor)
    await listed(other_bus, run)
    found = await found_workers(bus, run, 1)
    await other_bus.unsubscribe(subscription)
    assert [worker["id"] for worker in found] == ["w1"]


async def test_an_instance_runs_if_a_process_of_its_kind_answers(bus: Bus, other_bus: Bus, run: str) -> None:
    await listed(other_bus, run)
    assert await is_running(bus, run, "resources")
    assert not await is_running(bus, run, "agents", patience_s=0.0)
    assert not await is_running(bus, f"{run}-nobody", "resources", patience_s=0.0)


async def test_an_instance_that_is_being_started_is_waited_for(bus: Bus, other_bus: Bus, run: str) -> None:
    waiting = asyncio.create_task(is_running(bus, run, "resources", patience_s=20))
    await asyncio.sleep(0.1)
    await listed(other_bus, run)
    assert await waiting


async def test_a_question_without_a_reply_subject_is_ignored(bus: Bus, run: str) -> None:
    await listed(bus, run)
    await bus.publish(f"$SRV.PING.{run}", b"")
    assert await is_running(bus, run, "resources")
