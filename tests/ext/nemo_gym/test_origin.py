"""H10: a page of somebody else, in a browser on this machine, cannot use a bridge that asks for no key."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import pytest
import uvloop
from aiohttp import web

from gymq.bus import Bus
from gymq.ext.shared.addresses import is_loopback
from tests.support.browser import browser, needs_browser
from tests.support.environments import Counter
from tests.support.ports import free_port
from tests.support.world import HOST, World, grading_world

KEY = "a-key-of-sixteen-or-more"
READS = ("/", "/health", "/openapi.json", "/server_instances", "/v1/models", "/ui/", "/ui/api/runs", "/metrics")


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    async with grading_world(shared_url, bus, counter=Counter()) as made:
        yield made


def port_of(world: World) -> int:
    return int(world.head.rpartition(":")[2])


def writes(world: World) -> dict[str, Any]:
    """Each kind of request that would do something, with its body."""
    seed = {"responses_create_params": {"input": "x"}}
    return {
        "/run": world.row(),
        "/v1/responses": {"input": "x"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
        f"/agents/{world.name('asker')}/v1/responses": {"input": "x"},
        f"/resources/{world.name('counter')}/seed_session": seed,
        f"/resources/{world.name('counter')}/add": {"amount": 1},
    }


async def status(method: str, url: str, **kwargs: Any) -> tuple[int, str]:
    jar = aiohttp.DummyCookieJar()
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.request(method, url, allow_redirects=False, **kwargs) as answer,
    ):
        return answer.status, await answer.text()


async def nothing_ran(world: World) -> None:
    assert not world.engine.requests
    assert await world.queued() == 0
    assert await world.sessions() == 0


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1"},  # another port
    {"Origin": "http://localhost:8888"},
    {"Origin": "chrome-extension://abc"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "odd"},
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "localhost.evil.example"},
    {"Host": "evil.example#.localhost"},
    {"Host": "evil@127.0.0.1"},
    {"Host": "10.0.0.1"},
    {"Host": ""},
]


async def test_what_a_foreign_page_can_send_is_refused_everywhere(world: World) -> None:
    await world.start_bridge(metrics=True)
    for headers in FOREIGN:
        for path, body in writes(world).items():
            refused, text = await status("POST", world.head + path, json=body, headers=headers)
            assert refused == 403, (path, headers)
            assert json.loads(text)["error"]["message"].count("\n") == 0
        for path in READS:
            assert (await status("GET", world.head + path, headers=headers))[0] == 403, (path, headers)
    await nothing_ran(world)


async def test_trainers_and_the_page_itself_are_served(world: World) -> None:
    await world.start_bridge(allowed_hosts=["Trainer.cluster"], on_untrainable="allow")
    for headers in [
        {},
        {"Host": "localhost:5"},
        {"Host": "LOCALHOST."},
        {"Host": "[::1]:80"},
        {"Host": "trainer.cluster:11000"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ]:
        assert (await status("POST", f"{world.head}/run", json=world.row(), headers=headers))[0] == 200, headers
        assert (await status("GET", f"{world.head}/ui/", headers=headers))[0] == 200, headers
        assert (await status("GET", f"{world.head}/ui/", headers={"Origin": world.head}))[0] == 200, headers


async def test_a_link_from_elsewhere_leads_to_the_page_and_to_no_data(world: World) -> None:
    await world.start_bridge()
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await status("GET", f"{world.head}/ui/", headers=link))[0] == 200
    assert (await status("GET", f"{world.head}/ui", headers=link))[0] == 308
    for path in ("/ui/api/runs", "/server_instances", "/ui/index.html"):
        assert (await status("GET", world.head + path, headers=link))[0] == 403, path


async def test_behind_a_key_any_host_is_served_and_no_other_origin(world: World) -> None:
    await world.start_bridge(api_key=KEY)
    headers = {"Authorization": f"Bearer {KEY}", "Host": "gymq.example.org"}
    assert (await status("GET", f"{world.head}/v1/models", headers=headers))[0] == 200
    same = headers | {"Origin": "https://gymq.example.org"}
    assert (await status("GET", f"{world.head}/v1/models", headers=same))[0] == 200
    for origin in ("https://evil.example", "null", "https://gymq.example.org:8443"):
        assert (await status("GET", f"{world.head}/v1/models", headers=headers | {"Origin": origin}))[0] == 403


async def test_a_bridge_that_others_reach_takes_addresses_and_its_own_name(world: World) -> None:
    await world.start_bridge(host="0.0.0.0")
    for host in ("10.0.0.1:80", "[fd00::1]", socket.gethostname()):
        assert (await status("GET", f"{world.head}/v1/models", headers={"Host": host}))[0] == 200, host
    assert (await status("GET", f"{world.head}/v1/models", headers={"Host": "evil.example"}))[0] == 403


async def test_bodies_that_a_form_can_send_are_refused(world: World) -> None:
    await world.start_bridge()
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]:
        given = {} if content_type is None else {"Content-Type": content_type}
        for path, body in writes(world).items():
            sent = {"data": json.dumps(body).encode(), "headers": given, "skip_auto_headers": ["Content-Type"]}
            refused, text = await status("POST", world.head + path, **sent)
            assert refused == 415, (path, content_type)
            assert "Content-Type: application/json" in text
        await nothing_ran(world)


async def test_bodies_of_a_json_type_are_read(world: World) -> None:
    await world.start_bridge(on_untrainable="allow")
    for content_type in ["application/json", "application/json; charset=utf-8", "application/ld+json"]:
        body = json.dumps(world.row()).encode()
        sent = {"data": body, "headers": {"Content-Type": content_type}}
        assert (await status("POST", f"{world.head}/run", **sent))[0] == 200, content_type


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost", "a.localhost", "LocalHost.")),
        *(
            (host, False)
            for host in ("0.0.0.0", "10.0.0.1", "localhost.evil.example", "notlocalhost", "", "127.0.0.1x")
        ),
    ],
)
def test_what_means_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@needs_browser
async def test_in_a_real_browser_pages_of_other_origins_get_nowhere(world: World) -> None:
    """One page of another port of this machine, one of another site, and one whose name resolves to the bridge."""
    await world.start_bridge()
    bridge, attacker = port_of(world), free_port(HOST)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>evil</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, attacker).start()
    body = json.dumps(json.dumps(world.row()))
    try:
        async with browser("--host-resolver-rules=MAP evil.example 127.0.0.1") as tab:
            for origin in (f"http://{HOST}:{attacker}", f"http://evil.example:{attacker}"):
                await tab.open(origin)
                assert await tab.value("document.title") == "evil"
                for path in writes(world):
                    send = f"fetch('{world.head}{path}', {{method: 'POST', mode: 'no-cors', body: {body}}})"
                    assert await tab.value(f"{send}.then(answer => answer.type, error => error.name)") == "opaque"
                read = f"fetch('{world.head}/ui/api/runs').then(answer => answer.status, error => error.name)"
                assert await tab.value(read) == "TypeError"
            rebound = f"http://evil.example:{bridge}"
            await tab.open(f"{rebound}/ui/")
            assert "allowed_hosts" in await tab.value("document.body.innerText")
            assert await tab.value(f"fetch('{rebound}/ui/api/runs').then(answer => answer.status)") == 403
            same = f"{{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {body}}}"
            assert await tab.value(f"fetch('{rebound}/run', {same}).then(answer => answer.status)") == 403
            await tab.open(f"{world.head}/ui/")
            assert await tab.value("fetch('/ui/api/runs').then(answer => answer.status)") == 200
    finally:
        await runner.cleanup()
    await nothing_ran(world)
