"""A request that is wrong gets a status that says so, and leaves nothing behind."""

import asyncio
import json
import logging
import zlib
from collections.abc import Iterator
from typing import Any

import aiohttp
import pydantic
import pytest

from gymq.config import Config
from gymq.errors import PortTaken, UsageError
from gymq.ext.http.requests import connections_log
from gymq.ext.nemo_gym.directory import InstanceAddress
from gymq.ext.nemo_gym.interface import check
from gymq.ext.nemo_gym.settings import BridgeSettings, settings_of
from gymq.testing import reply
from tests.support.engine import Body, say
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.world import HOST, Client, World, new_client

KEY = "a-key-of-sixteen-or-more"
JSON = {"Content-Type": "application/json"}
BEGUN = b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
ROW = {"responses_create_params": {"input": "x"}}


async def nothing_is_left(world: World) -> None:
    assert world.bridge is not None
    assert world.bridge.rollouts.num_waiting == 0
    assert await world.queued() == 0
    assert await world.sessions() == 0
    assert await world.js.count_by_subject("JOURNAL", f"gym.journal.{world.bridge.rollouts.run}.>") == {}
    assert not world.engine.requests


@pytest.fixture
async def locked(world: World) -> World:
    """A bridge that asks for a key."""
    await world.start_bridge(api_key=KEY)
    return world


def paths(world: World) -> list[tuple[str, str]]:
    """A method and a path of each kind that needs the key."""
    return [
        ("GET", "/global_config_dict_yaml"),
        ("GET", "/server_instances"),
        ("GET", "/v1/models"),
        ("POST", "/run"),
        ("POST", "/aggregate_metrics"),
        ("POST", f"/agents/{world.name('asker')}/v1/responses"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/ng-rollout/x/v1/responses"),
        ("POST", f"/resources/{world.name('counter')}/seed_session"),
        ("POST", f"/resources/{world.name('counter')}/verify"),
        ("POST", f"/resources/{world.name('counter')}/close_session"),
        ("POST", f"/resources/{world.name('counter')}/add"),
    ]


async def test_without_the_key_nothing_is_served(locked: World) -> None:
    for headers in [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"x-api-key": KEY.upper()},
        {"Authorization": "Bearer é"},
    ]:
        async with new_client(locked) as client:
            for method, path in paths(locked):
                async with client.session.request(method, locked.head + path, json=ROW, headers=headers) as answer:
                    assert answer.status == 401, (path, headers)
                    assert KEY not in await answer.text()
        await nothing_is_left(locked)


async def test_with_the_key_all_is_served(locked: World) -> None:
    for headers in [{"Authorization": f"Bearer {KEY}"}, {"Authorization": f"bearer {KEY}"}]:
        async with new_client(locked) as client:
            assert (await client.run(locked.row(), **headers))[0] == 200


async def test_whether_it_lives_needs_no_key(locked: World) -> None:
    async with new_client(locked) as client:
        for path in ("/", "/health", "/openapi.json"):
            assert (await client.session.get(locked.head + path)).status == 200


async def test_keys_are_in_no_log_and_no_error(
    locked: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": f"Bearer {KEY}"}
    locked.engine.turn = lambda body: (401, {"error": "Incorrect API key provided: sk-a-key-for-tests"})
    async with new_client(locked) as client:
        status, body = await client.run(locked.row(), **headers)
        assert status >= 400
        assert "sk-a-key-for-tests" not in json.dumps(body)
        await client.run(locked.row(), Authorization="Bearer wrong-and-secret-too")
    for secret in (KEY, "sk-a-key-for-tests", "wrong-and-secret-too"):
        assert secret not in caplog.text


def test_a_key_that_is_easily_guessed_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match=r"bridge: api_key: .*16 characters") as caught:
        check(Config({"bridge": {"api_key": "hushhush"}}, []))
    assert "hushhush" not in str(caught.value)
    assert KEY not in repr(BridgeSettings(api_key=pydantic.SecretStr(KEY)))


def test_the_head_servers_address_is_taken_from_where_configurations_have_it() -> None:
    assert settings_of({"head_server": {"host": "0.0.0.0", "port": 5001}}).port == 5001
    assert settings_of({"head_server": {"port": 5001}, "bridge": {"port": 5002}}).port == 5002


# Methods, paths, sizes ------------------------------------------------------------------------------------------------


async def test_a_wrong_method_is_told_with_the_right_one(client: Client, world: World) -> None:
    for method, path, allowed in [
        ("GET", "/run", "POST"),
        ("PUT", "/run", "POST"),
        ("DELETE", "/server_instances", "GET,HEAD"),
        ("GET", "/v1/responses", "POST"),
        ("PATCH", "/verify", "POST"),
        ("POST", "/health", "GET,HEAD"),
        ("POST", "/global_config_dict_yaml", "GET,HEAD"),
    ]:
        async with client.session.request(method, world.head + path, json=world.row()) as answer:
            assert answer.status == 405, (method, path)
            assert set(allowed.split(",")) <= set(answer.headers["Allow"].split(", "))
            assert set(await answer.json()) == {"error"}
        await nothing_is_left(world)


async def test_what_is_not_there_is_not_found(client: Client, world: World) -> None:
    for path in [
        "/nothing",
        "/agents/nobody/run",
        "/models/nobody/v1/responses",
        "/resources/nobody/verify",
        "/agents/{policy}/run",
        "/models/{asker}/v1/chat/completions",
        "/resources/{policy}/seed_session",
        "/run/",
        "/a/b/c/d",
        "/resources/{counter}/nothing",
    ]:
        names = {name: world.name(name) for name in ("policy", "asker", "counter")}
        status, body = await client.post(path.format(**names), world.row())
        assert status in (404, 400), (path, body)
        assert set(body) == {"error"}
        await until(lambda: not any(runner.local.sessions for runner in world.resources))
        await nothing_is_left(world)


async def test_the_port_of_one_instance_does_not_serve_another_kind(client: Client, world: World) -> None:
    for name, path in (
        ("policy", "/run"),
        ("policy", "/verify"),
        ("asker", "/verify"),
        ("asker", "/v1/chat/completions"),
        ("counter", "/v1/responses"),
        ("counter", "/run"),
    ):
        assert (await client.post(world.at(name) + path, world.row()))[0] == 404, (name, path)
    await nothing_is_left(world)


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_that_is_too_large_is_refused(world: World, chunked: bool) -> None:
    await world.start_bridge(max_body_bytes=4096)
    body = json.dumps(world.row(blob="x" * 10_000)).encode()

    async def parts() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    async with new_client(world) as client:
        for path in ("/run", "/v1/responses", f"/resources/{world.name('counter')}/seed_session"):
            data = parts() if chunked else body
            async with client.session.post(world.head + path, data=data, headers=JSON) as answer:
                assert answer.status == 413
    await nothing_is_left(world)


async def test_a_body_that_inflates_is_refused_unread(client: Client, world: World) -> None:
    for encoding in ["deflate", "gzip", "br", "x"]:
        body = zlib.compress(json.dumps(world.row(blob="x" * 1_000_000)).encode())
        for path in ("/run", "/v1/messages", f"/resources/{world.name('counter')}/seed_session"):
            status, answer = await client.post(path, body, headers={"Content-Encoding": encoding})
            assert status == 415, (encoding, path)
            assert "Content-Encoding" in json.dumps(answer)
        await nothing_is_left(world)


async def test_a_body_that_never_ends_is_given_up(world: World) -> None:
    await world.start_bridge(body_timeout_s=0.1)
    port = int(world.head.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BEGUN)
    assert b" 408 " in await reader.readline()
    writer.close()
    await nothing_is_left(world)


async def test_what_is_not_http_is_refused_without_a_traceback_and_the_bridge_lives_on(
    client: Client, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for said in [
        b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /run HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01 not http at all\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]:
        port = int(world.head.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        assert b" 400 " in await reader.readline(), said[:100]
        await reader.read()
        writer.close()
        assert (await client.run(world.row()))[0] == 200
        assert not any(record.exc_info for record in caplog.records)


async def test_a_header_that_is_not_utf8_is_refused_as_any_other(
    client: Client, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for header in ["Origin", "Sec-Fetch-Site", "Content-Encoding"]:
        port = int(world.head.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n{header}: "
        writer.write(said.encode() + b"\xff\r\nContent-Type: application/json\r\n\r\n{}")
        assert (b" 415 " if header == "Content-Encoding" else b" 403 ") in await reader.readline(), header
        writer.close()
        assert not any(record.exc_info for record in caplog.records)


def test_who_hangs_up_in_the_middle_of_an_answer_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    connections_log.error("unhandled", exc_info=aiohttp.ClientConnectionResetError("Cannot write to closing transport"))
    assert not caplog.records


async def test_a_connection_that_ends_in_the_middle_of_a_body_leaves_nothing(client: Client, world: World) -> None:
    port = int(world.head.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BEGUN)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert world.bridge is not None
    await until(lambda: world.bridge is not None and world.bridge._server.num_in_flight == 0)
    await nothing_is_left(world)


async def test_deep_nesting_is_refused(client: Client, world: World) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    body = json.dumps(world.row(x=0)).replace('"x": 0', '"x": DEEP').encode().replace(b"DEEP", deep)
    for path in ("/run", "/v1/responses", f"/resources/{world.name('counter')}/seed_session"):
        status, _ = await client.post(path, body)
        assert status == 422, path
    await nothing_is_left(world)


async def test_results_that_are_none_are_not_aggregated(client: Client) -> None:
    for body in [b"{", b"[]", b"{}", b'{"verify_responses": 1}', b'{"verify_responses": [1]}']:
        assert (await client.post("/aggregate_metrics", body))[0] == 422, body


async def test_a_number_beyond_all_floats_is_not_aggregated(client: Client) -> None:
    result = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}, "steps": 10**400}
    status, body = await client.post("/aggregate_metrics", {"verify_responses": [result]})
    assert (status, body["key_metrics"]) == (200, {"mean/reward": 1.0})
    status, body = await client.post("/aggregate_metrics", {"verify_responses": [{**result, "reward": 10**400}]})
    assert status == 422
    assert "`reward` is an integer, too large for statistics" in body["error"]["message"]


async def test_results_are_aggregated(client: Client, world: World) -> None:
    results = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": float(rollout), "response": reply("x")}
        for task in range(2)
        for rollout in range(2)
    ]
    status, body = await client.post("/aggregate_metrics", {"verify_responses": results})
    assert status == 200
    assert body["agent_metrics"]["mean/reward"] == 0.5
    assert body["key_metrics"]["mean/reward"] == 0.5
    assert len(body["group_level_metrics"]) == 2


async def test_an_agents_response_comes_without_a_verdict(client: Client, world: World) -> None:
    for url in (f"/agents/{world.name('asker')}/v1/responses", f"{world.at('asker')}/v1/responses"):
        status, body = await client.post(url, {"input": "hi"})
        assert status == 200
        assert body["output"][0]["content"][0]["text"] == "done"
        assert "reward" not in body
        status, body = await client.post(url, {"input": "hi", "previous_response_id": body["id"]})
        assert status == 422
        assert "no reply that is kept here" in body["error"]["message"]


async def test_a_key_that_is_none_is_refused(client: Client, world: World) -> None:
    for key in ["", "x" * 300, "with blank", "tab\tbed"]:
        assert (await client.run(world.row(), **{"Idempotency-Key": key}))[0] == 422, key
        await nothing_is_left(world)


async def test_a_port_that_is_taken_is_told(world: World) -> None:
    port = free_port("127.0.0.1")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
    async with server:
        with pytest.raises(PortTaken, match=f"{port}"):
            await world.start_bridge(port=port)


async def test_a_bridge_at_the_port_of_another_cancels_nothing_of_it(client: Client, world: World) -> None:
    held = asyncio.Event()

    async def hold(body: Body) -> Body:
        await held.wait()
        return say("done")

    world.engine.turn = hold
    asking = asyncio.create_task(client.run(world.row()))
    await until(lambda: world.engine.requests)
    bridge = world.bridge
    assert bridge is not None
    with pytest.raises(PortTaken):
        await world.start_bridge(port=bridge._settings.port)
    held.set()
    assert (await asking)[0] == 200


async def test_instances_that_nobody_serves_are_listed_as_missing(world: World) -> None:
    unserved = InstanceAddress(world.name("unserved"), "models", "policy", HOST, free_port(HOST), {})
    world.places.append(vars(unserved))
    await world.start_bridge()
    async with new_client(world) as client, client.session.get(f"{world.head}/server_instances") as answer:
        listed = {entry["process_name"]: (entry["status"], entry["url"]) for entry in await answer.json()}
    assert listed[world.name("policy")] == ("running", world.at("policy"))
    assert listed[unserved.name] == ("missing", unserved.url)


async def test_a_bridge_without_nats_says_that_it_is_not_ready(client: Client, world: World) -> None:
    assert world.bridge is not None
    await world.bridge._context.bus.close()
    async with client.session.get(f"{world.head}/health") as answer:
        assert answer.status == 503
    async with aiohttp.ClientSession() as session, session.get(f"{world.head}/") as answer:
        assert answer.status == 200


def frames_of(coroutine: Any) -> Iterator[Any]:
    """The frames of a coroutine and of what it waits for."""
    while getattr(coroutine, "cr_frame", None) is not None:
        yield coroutine.cr_frame
        coroutine = coroutine.cr_await


async def test_what_waits_for_a_rollout_does_not_hold_its_row(client: Client, world: World) -> None:
    hold = asyncio.Event()

    async def wait(body: Any) -> Any:
        await hold.wait()
        return say("done")

    world.engine.turn = wait
    marker = "a-row-that-is-not-kept" * 10_000
    asking = asyncio.create_task(client.run(world.row(blob=marker)))
    await until(lambda: world.engine.requests)
    names = {
        name
        for task in asyncio.all_tasks()
        for frame in frames_of(task.get_coro())
        if "gymq/ext/nemo_gym" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename
        for name, value in frame.f_locals.items()
        if isinstance(value, bytes) and marker.encode() in value
    }
    assert not names
    hold.set()
    assert (await asking)[0] == 200


async def test_a_path_with_two_slashes_is_not_found_with_the_cure(client: Client) -> None:
    for path in ["//v1/models", "/v1//chat/completions"]:
        status, body = await client.post(path, {})
        assert status == 404, path
        assert "the path has `//`: remove the `/` at the end of the base URL" in json.dumps(body)


async def test_half_of_a_surrogate_pair_in_a_body_is_named(client: Client) -> None:
    status, body = await client.post("/run", b'{"responses_create_params": {"input": "\\ud83d"}}')
    assert status == 422
    assert "half of a surrogate pair" in json.dumps(body)
