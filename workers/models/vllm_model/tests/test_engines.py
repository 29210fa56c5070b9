"""Several engines over HTTP: sessions that stay, engines that are down, full, slow, and that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json
from gymq.workers.models.openai_model.tests.replies import completion
from gymq.workers.models.vllm_model import engines as engines_module
from gymq.workers.models.vllm_model.balancer import FIRST_WINDOW
from gymq.workers.models.vllm_model.engines import Engines
from gymq.workers.models.vllm_model.tests.conftest import Start, ask, failure
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from tests.support.waiting import until

REPORT_EVERY_S = 0.01


def reporting(running: int, waiting: int, *, blocks: int = 1000) -> str:
    return (
        f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
        f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{blocks}"}} 1.0\n'
    )


def pool(worker: VLLMModel) -> Engines:
    assert isinstance(worker._backend, Engines)
    return worker._backend


@pytest.fixture
async def other(server: MockServer) -> AsyncIterator[MockServer]:
    """Another engine beside `server`; both answer at once."""
    async with MockServer() as other:
        for engine in (server, other):
            engine.aside = server.aside
            engine.answers = [as_json(completion("Hello"))]
        yield other


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports and sources are read without long pauses."""
    for name in ("REPORT_EVERY_S", "LOOK_EVERY_S", "SOURCES_EVERY_S"):
        monkeypatch.setattr(engines_module, name, REPORT_EVERY_S)


@pytest.mark.usefixtures("waits")
async def test_a_dead_engine_is_left_alone_and_its_sessions_go_to_another(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hello"))]
    async with MockServer() as dead:
        dead_url = dead.url
    worker = await start(base_url=[dead_url, server.url])
    replies = [await ask(worker, session=f"other/{number}/0") for number in range(20)]
    assert [reply["status"] for reply in replies] == ["completed"] * 20
    assert len(server.asked) == 20


@pytest.mark.usefixtures("waits")
async def test_if_no_engine_can_be_reached_the_rollout_may_be_tried_again(start: Start) -> None:
    async with MockServer() as one, MockServer() as two:
        urls = [one.url, two.url]
    found = await failure(await start(base_url=urls))
    assert (found.failure_class, found.retryable) == (gymq.FailureClass.MODEL_FAILED, True)
    assert "none of 2 engines takes the request; the last: " in found.message
    assert "cannot connect" in found.message


@pytest.mark.usefixtures("waits")
async def test_an_engine_that_fails_is_not_replaced_by_another(
    start: Start, server: MockServer, other: MockServer
) -> None:
    for engine in (server, other):
        engine.answers = [as_json({"message": "oops"}, "500 Internal Server Error")]
    await failure(await start(base_url=[server.url, other.url]))
    assert {len(server.asked), len(other.asked)} == {0, 3}


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
@pytest.mark.usefixtures("waits")
async def test_an_engine_that_has_too_much_to_do_is_left_at_once(
    start: Start, server: MockServer, other: MockServer, status: str
) -> None:
    server.answers = [as_json({"message": "busy"}, status)]
    worker = await start(base_url=[server.url, other.url])
    for number in range(10):
        await ask(worker, session=f"other/{number}/0")
    assert (len(server.asked), len(other.asked)) == (1, 10)


@pytest.mark.usefixtures("waits")
async def test_if_all_have_too_much_to_do_the_last_one_is_asked_again(
    start: Start, server: MockServer, other: MockServer
) -> None:
    busy = as_json({"message": "busy"}, "503 Service Unavailable")
    server.answers = other.answers = [busy, busy, busy, as_json(completion("Hello"))]
    reply = await ask(await start(base_url=[server.url, other.url]))
    assert reply["status"] == "completed"
    assert sorted([len(server.asked), len(other.asked)]) == [1, 3]


@pytest.mark.usefixtures("waits", "often")
async def test_an_engine_that_comes_back_is_asked_again(start: Start, server: MockServer, other: MockServer) -> None:
    async with MockServer() as back:
        back.answers = [as_json(completion("Hello"))]
    worker = await start(base_url=[back.url, server.url])
    await ask(worker, session="other/1/0")
    assert (len(back.asked), len(server.asked)) == (0, 1)
    async with await asyncio.start_server(back._serve, "127.0.0.1", back.port):
        await until(lambda: not pool(worker)._balancer.is_gone(back.url))
        await ask(worker, session="other/2/0")
        await ask(worker, session="other/1/0")
    assert (len(back.asked), len(server.asked)) == (1, 2)


@pytest.mark.usefixtures("often")
async def test_sessions_that_begin_wait_until_an_engine_has_room(start: Start, server: MockServer) -> None:
    gate = asyncio.Event()

    async def reply(_asked: Asked) -> Answer:
        await gate.wait()
        return as_json(completion("Hello"))

    server.reply = reply
    server.metrics = reporting(1, FIRST_WINDOW)
    worker = await start()
    await until(lambda: pool(worker).load() is not None)
    asking = [asyncio.create_task(ask(worker, f"run/{number}/0/1")) for number in range(3 * FIRST_WINDOW)]
    await until(lambda: sum(worker.waits().values()) > FIRST_WINDOW)
    assert server.in_flight < FIRST_WINDOW
    assert "the engines have enough to do" in worker.waits()
    load = worker.load()
    assert load is not None
    assert (load.running, load.waiting) == (3 * FIRST_WINDOW, 0)
    server.metrics = reporting(1, 0)
    gate.set()
    assert {reply["status"] for reply in await asyncio.gather(*asking)} == {"completed"}


@pytest.mark.usefixtures("often")
async def test_no_session_begins_in_an_engine_that_is_paused(
    start: Start, server: MockServer, other: MockServer
) -> None:
    server.metrics = other.metrics = reporting(0, 0)
    server.is_paused, other.is_paused = True, False
    worker = await start(base_url=[server.url, other.url])
    await until(lambda: all(engine.reported for engine in pool(worker).engines))
    for number in range(10):
        await ask(worker, session=f"run/{number}/0")
    assert (len(server.asked), len(other.asked)) == (0, 10)
    other.is_paused = True
    await until(lambda: all(engine.reported and engine.reported.is_paused for engine in pool(worker).engines))
    waiting = asyncio.create_task(ask(worker, session="run/10/0"))
    await until(lambda: worker.waits()["the engines are paused"] == 1)
    await ask(worker, session="run/0/0")  # it has begun, and waits in its engine
    server.is_paused = False
    assert (await waiting)["status"] == "completed"
    assert (len(server.asked), len(other.asked)) == (1, 11)


@pytest.mark.usefixtures("often")
async def test_who_waits_for_an_engine_and_hangs_up_is_forgotten(start: Start, server: MockServer) -> None:
    worker = await start(max_concurrent_requests=1)
    worker.share(0, 0)  # nothing is its part yet
    asking = asyncio.create_task(ask(worker))
    await until(lambda: sum(worker.waits().values()) == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sum(worker.waits().values()) == 0
    server.answers = [as_json(completion("Hello"))]
    worker.share(0, 1)
    await ask(worker)


async def test_what_waits_longer_than_it_may_says_what_it_waited_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engines").write_text("")
    worker = await start(base_url=f"file:{tmp_path}/engines")
    request = gymq.ModelRequest({"input": [{"role": "user", "content": "Hi"}]}, "run/0/0/1", "run/0/0", 0.01)
    with pytest.raises(gymq.RolloutError) as caught:
        await worker.respond(request)
    assert caught.value.failure_class is gymq.FailureClass.DEADLINE_EXCEEDED
    assert caught.value.message == f"not sent: file:{tmp_path}/engines: no engine is known"


@pytest.mark.usefixtures("often")
async def test_engines_in_a_file_come_and_go(
    start: Start, server: MockServer, other: MockServer, tmp_path: Path
) -> None:
    file = tmp_path / "engines"
    file.write_text("")
    worker = await start(base_url=f"file:{file}")
    waiting = asyncio.create_task(ask(worker, "run/0/0/1"))
    await until(lambda: sum(worker.waits().values()) == 1)
    file.write_text(f"{server.url}\n")
    await waiting
    assert len(server.asked) == 1
    file.write_text(f"{other.url}\n")
    await until(lambda: [engine.base_url for engine in pool(worker).engines] == [other.url.removesuffix("/v1")])
    await ask(worker, "run/0/0/1")
    assert (len(server.asked), len(other.asked)) == (1, 1)


@pytest.mark.usefixtures("often")
async def test_a_trainer_replaces_engines_and_what_runs_there_ends(
    start: Start, server: MockServer, other: MockServer, tmp_path: Path
) -> None:
    gate = asyncio.Event()

    async def reply(_asked: Asked) -> Answer:
        await gate.wait()
        return as_json(completion("Hello"))

    server.reply = reply
    file = tmp_path / "engines"
    file.write_text(server.url)
    worker = await start(base_url=f"file:{file}", max_concurrent_requests=4)
    worker.share(0, 2)
    running = asyncio.create_task(ask(worker, "run/0/0/1"))
    await server.busy_with(1)
    await pool(worker).replace([other.url])
    assert [engine.limit.now for engine in pool(worker).engines] == [2]
    await ask(worker, "run/1/0/1")
    await ask(worker, "run/0/0/2")
    assert len(other.asked) == 2
    gate.set()
    assert (await running)["status"] == "completed"
    with pytest.raises(ValueError, match="expected a URL"):
        await pool(worker).replace(["nowhere"])


@pytest.mark.usefixtures("often")
async def test_replicas_divide_the_caches_of_their_engines(start: Start, server: MockServer, other: MockServer) -> None:
    worker = await start(base_url=[server.url, other.url])
    await ask(worker)
    assert worker.load() is None
    server.metrics = other.metrics = reporting(1, 0)
    await until(lambda: (load := worker.load()) is not None and load.kv_cache_tokens == 32000)
    worker.share(0, 0)
    assert worker.load() == gymq.ModelLoad(0, 0, 0.5, 32000)
    worker.share(1, 4)
    assert worker.load() == gymq.ModelLoad(0, 0, 0.5, 8000)
    pool(worker)._balancer.eject(server.url, 0.0, since=0.0)
    assert worker.load() == gymq.ModelLoad(0, 0, 0.5, 4000)


async def test_the_metrics_of_tensorrt_llm_are_elsewhere(start: Start, server: MockServer) -> None:
    server.metrics = "trtllm_num_requests_running 0\ntrtllm_kv_cache_max_blocks 9\ntrtllm_kv_cache_tokens_per_block 8\n"
    server.metrics_path = "/prometheus/metrics"
    worker = await start()
    await until(lambda: worker.load() == gymq.ModelLoad(0, 0, 0.0, 72))


async def test_all_calls_of_a_session_have_the_same_header_and_others_another(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hello"))]
    worker = await start()
    for session in ("run/0/0/1", "run/0/0/2", "other/1/0", "other/1/0", ""):
        await ask(worker, session)
    sessions = [asked.headers.get("x-session-id") for asked in server.asked]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert sessions[4] is None
    assert all(session and session.isalnum() for session in sessions[:4])


@pytest.mark.parametrize("name", ["X-SMG-Routing-Key", None])
async def test_the_header_has_the_name_that_the_router_wants(start: Start, server: MockServer, name: Any) -> None:
    server.answers = [as_json(completion("Hello"))]
    await ask(await start(session_affinity_header=name))
    (asked,) = server.asked
    assert "x-session-id" not in asked.headers
    assert ("x-smg-routing-key" in asked.headers) == (name is not None)
