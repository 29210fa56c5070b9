"""Resources over HTTP, where a cookie is the session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymq.ext.nemo_gym.cookies import SessionCookies
from gymq.testing import reply
from tests.support.environments import Counter, Grader
from tests.support.waiting import until
from tests.support.world import World

ROW = {"responses_create_params": {"input": "count"}, "kept": [None, 1.5]}


class Player:
    """A client in the way of the verifiers library: one cookie jar a rollout."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def post(self, path: str, body: Any = None, **kwargs: Any) -> tuple[int, str]:
        async with self.session.post(self.base + path, json=body, **kwargs) as answer:
            return answer.status, await answer.text()

    async def json(self, path: str, body: Any) -> Any:
        async with self.session.post(self.base + path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


@asynccontextmanager
async def player(base: str) -> AsyncIterator[Player]:
    jar = aiohttp.CookieJar(unsafe=True)  # also for hosts that are addresses
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Player(session, base)


@pytest.fixture
async def four(empty_world: World) -> World:
    """Four workers with state behind one bridge."""
    await empty_world.add_resources("counter", Counter(), copies=4)
    await empty_world.add_resources("grader", Grader())
    await empty_world.start_bridge()
    return empty_world


async def play(base: str, start: int, amounts: list[int]) -> Any:
    """A whole rollout: seed, tools, verify."""
    row = ROW | {"start": start, "expected": start + sum(amounts)}
    async with player(base) as me:
        await me.json("/seed_session", row)
        total = start
        for amount in amounts:
            total += amount
            assert await me.json("/add", {"amount": amount}) == {"total": total}
        return await me.json("/verify", row | {"response": reply("done")})


async def test_each_rollout_keeps_its_session_while_four_workers_run(four: World) -> None:
    base = four.at("counter")
    results = await asyncio.gather(*(play(base, start, [1, 2, start]) for start in range(40)))
    assert [result["reward"] for result in results] == [1.0] * 40
    assert [result["total"] for result in results] == [start + 3 + start for start in range(40)]
    assert len([runner for runner in four.resources if runner.local.sessions]) == 4


async def test_the_verdict_comes_with_the_row_and_the_response(four: World) -> None:
    result = await play(four.at("counter"), 1, [2])
    assert result["responses_create_params"] == ROW["responses_create_params"]
    assert result["kept"] == ROW["kept"]
    assert result["response"] == reply("done")


async def test_sessions_live_below_a_prefix_too(four: World) -> None:
    assert (await play(f"{four.head}/resources/{four.name('counter')}", 3, [4]))["reward"] == 1.0


async def test_sessions_of_one_jar_do_not_touch_each_other(four: World) -> None:
    """Cookies know no ports, so two instances share a jar."""
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW | {"start": 5})
        assert (await me.post("/add", {"amount": 1}))[0] == 200
        other = Player(me.session, four.at("grader"))
        await other.json("/seed_session", ROW)
        assert (await other.json("/verify", ROW | {"response": reply("x")}))["reward"] == 1.0
        assert await me.json("/add", {"amount": 1}) == {"total": 7}


async def test_a_worker_without_state_needs_no_cookie(four: World) -> None:
    async with player(four.at("grader")) as me:
        assert (await me.json("/verify", ROW | {"response": reply("x")}))["reward"] == 1.0


async def test_a_session_continues_through_another_bridge_with_the_same_secret(empty_world: World) -> None:
    world = empty_world
    await world.add_resources("counter", Counter())
    secret = "a secret that bridges share"
    await world.start_bridge(session_secret=secret)
    prefix = f"/resources/{world.name('counter')}"
    async with player(world.head + prefix) as me:
        await me.json("/seed_session", ROW | {"start": 5})
        assert world.bridge is not None
        await world.bridge.__aexit__(None, None, None)
        await world.start_bridge(session_secret=secret)
        again = Player(me.session, world.head + prefix)
        assert await again.json("/add", {"amount": 1}) == {"total": 6}


async def test_a_call_with_a_key_runs_once(four: World) -> None:
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW | {"start": 0})
        key = {"Idempotency-Key": "k1"}
        first = await me.post("/add", {"amount": 1}, headers=key)
        assert await me.post("/add", {"amount": 1}, headers=key) == first
        assert await me.json("/add", {"amount": 1}) == {"total": 2}


async def test_a_session_that_is_closed_is_gone(four: World) -> None:
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW)
        await me.json("/close_session", None)
        await until(lambda: not any(runner.local.sessions for runner in four.resources))


async def test_a_row_that_does_not_fit_opens_no_session(four: World) -> None:
    for body in [b"", b"[]", b"{", b"{}", b'{"responses_create_params": {"input": 3}}']:
        json_type = {"Content-Type": "application/json"}
        async with (
            player(four.at("counter")) as me,
            me.session.post(me.base + "/seed_session", data=body, headers=json_type) as answer,
        ):
            assert answer.status == 422, body
            assert "Set-Cookie" not in answer.headers
            assert "the line is" not in await answer.text()
        assert await four.sessions() == 0


async def test_a_tool_call_that_is_refused_opens_no_session(four: World) -> None:
    for path, status in [("/nothing", 404), ("/add", 422), ("/seed", 404), ("/close", 404)]:
        async with player(four.at("counter")) as me:
            got, text = await me.post(path, {"amount": "many"})
            assert got in (status, 400), (path, text)
        await until(lambda: not any(runner.local.sessions for runner in four.resources))


async def test_a_verification_without_a_session_is_refused_where_state_matters(four: World) -> None:
    async with player(four.at("counter")) as me:
        status, text = await me.post("/verify", ROW | {"response": reply("x")})
    assert status == 400
    assert "seed a session first" in text


async def test_a_cookie_that_was_not_made_here_is_refused(four: World) -> None:
    for cookie in ["", "x", "W10.AAAA", "é", "." * 500]:
        headers = {"Cookie": f"gymq_session_{four.name('counter')}={cookie}"}
        async with player(four.at("counter")) as me:
            assert (await me.post("/add", {"amount": 1}, headers=headers))[0] == 400, cookie
        assert await four.sessions() == 0


async def test_a_cookie_of_another_instance_is_refused(four: World) -> None:
    assert four.bridge is not None
    async with player(four.at("grader")) as me:
        await me.json("/seed_session", ROW)
        (value,) = [cookie.value for cookie in me.session.cookie_jar]
        headers = {"Cookie": f"gymq_session_{four.name('counter')}={value}"}
        async with aiohttp.ClientSession() as bare:
            status, text = await Player(bare, four.at("counter")).post("/add", {"amount": 1}, headers=headers)
    assert status == 400
    assert "another instance" in text


async def test_a_cookie_that_is_too_old_is_refused(four: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW)
        real = SessionCookies.read

        def later(self: SessionCookies, resources: str, value: str) -> str | None:
            self.max_age_s = -1.0
            return real(self, resources, value)

        monkeypatch.setattr(SessionCookies, "read", later)
        status, text = await me.post("/add", {"amount": 1})
    assert status == 401
    assert "session_expired" in text


async def test_a_session_whose_worker_lost_it_is_told_as_infrastructure(four: World) -> None:
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW)
        for runner in four.resources:
            await runner.local.close_all()
        assert (await me.post("/add", {"amount": 1}))[0] == 500


async def test_tools_are_served_by_resources_only(four: World) -> None:
    async with player(four.head) as me:
        assert (await me.post("/add", {"amount": 1}))[0] == 404


async def test_the_only_resources_are_meant_where_none_are_named(empty_world: World) -> None:
    await empty_world.add_resources("counter", Counter())
    await empty_world.start_bridge()
    assert (await play(empty_world.head, 3, [4]))["reward"] == 1.0


class NemoGymAgent:
    """One rollout in the way of NeMo Gym's simple_agent, which keeps the cookies of the last reply and no others."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base
        self._cookies: dict[str, str] = {}

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        async with self._session.post(self._base + path, json=body, cookies=self._cookies) as answer:
            self._cookies = {name: morsel.value for name, morsel in answer.cookies.items()}
            return answer.status, await answer.json()

    async def play(self, start: int, amounts: list[Any]) -> Any:
        row = ROW | {"start": start, "expected": start + sum(amount for amount in amounts if isinstance(amount, int))}
        assert (await self.post("/seed_session", row))[0] == 200
        for amount in amounts:
            await self.post("/add", {"amount": amount})  # what is refused is text for the model
        status, verdict = await self.post("/verify", row | {"response": reply("done")})
        assert status == 200, verdict
        return verdict["reward"]


async def test_agents_that_keep_the_cookies_of_the_last_reply_keep_their_session(four: World) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        agents = [NemoGymAgent(session, four.at("counter")) for _ in range(50)]
        rewards = await asyncio.gather(*(agent.play(start, [1, "no", 2, start]) for start, agent in enumerate(agents)))
    assert rewards == [1.0] * 50
    assert await four.sessions() == 50


async def test_a_reply_that_is_an_error_of_the_bridge_has_the_cookie_too(four: World) -> None:
    async with player(four.at("counter")) as me:
        await me.json("/seed_session", ROW)
        async with me.session.post(me.base + "/add", data=b"{", headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 422
            assert f"gymq_session_{four.name('counter')}" in answer.cookies


async def test_a_tool_call_without_a_session_is_refused_where_state_matters(four: World) -> None:
    async with player(four.at("counter")) as me:
        status, text = await me.post("/add", {"amount": 1})
    assert status == 400
    assert "seed a session first" in text
    assert "cookie of the last reply" in text
    assert await four.sessions() == 0
