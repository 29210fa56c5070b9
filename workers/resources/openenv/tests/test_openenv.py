"""Environments behind OpenEnv's protocol: what they answer, and what happens when they do not.

`tests/hubs` does the same with servers of the package.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from gymq.workers.agents.gymnasium_agent.worker import GymnasiumAgent
from gymq.workers.resources.openenv.example_server import app
from gymq.workers.resources.openenv.tests.mocks import serving
from gymq.workers.resources.openenv.worker import OpenEnvironment

import gymq
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, prompt, reply
from gymq.testing.agent_harness import AgentHarness
from tests.support.waiting import until

ROW = {**prompt("Reply with a number only."), "reset": {"number": 42}}
Answer = dict[str, Any] | str | None


class Scripted:
    """A server that answers as the test says: with an object, with a text, or by hanging up (None)."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.received: list[dict[str, Any]] = []
        self.num_open = 0
        self._answer = answer

    def app(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/ws", self._serve)
        return application

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.num_open += 1
        async for received in socket:
            message = json.loads(received.data)
            self.received.append(message)
            answer = self._answer(message)
            if message["type"] == "close" or answer is None:
                break
            await socket.send_str(answer if isinstance(answer, str) else json.dumps(answer))
        self.num_open -= 1
        return socket


def observed(observation: Any = "", reward: float | None = 0.0, done: bool = False) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


def failed(code: str, message: str = "why") -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


async def played(answer: Callable[[dict[str, Any]], Answer], *actions: str, **options: Any) -> dict[str, Any]:
    """The last step's answer."""
    async with (
        serving(Scripted(answer).app()) as url,
        Harness(OpenEnvironment, {"base_url": url, **options}) as env,
    ):
        session = await env.session(ROW)
        for action in actions:
            step: dict[str, Any] = json.loads((await session.call("step", {"action": action})).output)
    return step


def steps(answer: Answer) -> Callable[[dict[str, Any]], Answer]:
    return lambda message: answer if message["type"] == "step" else observed("Begin.")


@pytest.mark.parametrize(("said", "reward"), [(["50", "x", "42"], 1.0), (["1"] * 10, 0.0)])
async def test_an_episode_is_played_to_its_end(said: list[str], reward: float) -> None:
    answers = iter(said)
    async with serving(app()) as url:
        options = {"base_url": url, "observation_field": "text"}

        class Here(OpenEnvironment):
            def __init__(self) -> None:
                super().__init__(options)

        async with AgentHarness(GymnasiumAgent, Here, lambda params: reply(next(answers))) as harness:
            verdict, response = await harness.run(ROW)
        async with Harness(OpenEnvironment, options) as env:
            again = await env.verify(ROW, response)
    assert (verdict.reward, verdict.fields["terminated"]) == (reward, True)
    assert again.reward == reward


async def test_each_episode_has_a_connection_of_its_own_which_ends_with_it() -> None:
    server = Scripted(steps(observed("Next.")))
    async with serving(server.app()) as url, Harness(OpenEnvironment, {"base_url": url}) as env:
        sessions = [await env.session(ROW) for _ in range(5)]
        assert server.num_open == 5
        await asyncio.gather(*(session.close() for session in sessions))
        await until(lambda: server.num_open == 0)
    assert [message["data"] for message in server.received if message["type"] == "reset"] == [{"number": 42}] * 5


async def test_episodes_are_spread_over_servers() -> None:
    servers = [Scripted(steps(observed())) for _ in range(2)]
    async with (
        serving(servers[0].app()) as one,
        serving(servers[1].app()) as two,
        Harness(OpenEnvironment, {"base_url": [one, f"{two}/"]}) as env,
    ):
        for _ in range(6):
            await env.session(ROW)
    assert [len([m for m in server.received if m["type"] == "reset"]) for server in servers] == [3, 3]


async def test_the_model_reads_the_whole_observation_unless_a_field_is_named() -> None:
    answer = steps(observed({"board": "é", "left": 3}, reward=None))
    assert (await played(answer, "a"))["observation"] == '{"board": "é", "left": 3}'
    assert (await played(lambda message: observed({"board": "é"}), "a", observation_field="board"))[
        "observation"
    ] == "é"


async def test_an_action_may_be_an_object() -> None:
    def echoes(message: dict[str, Any]) -> Answer:
        return observed(message["data"])

    assert (await played(echoes, '{"code": "1 + 1"}', action_format="json"))["observation"] == '{"code": "1 + 1"}'
    assert (await played(echoes, "1 + 1", action_field="code"))["observation"] == '{"code": "1 + 1"}'
    assert "must be a JSON object" in (await played(echoes, "1 + 1", action_format="json"))["observation"]


async def test_an_action_that_does_not_fit_is_told_to_the_model() -> None:
    step = await played(steps(failed("VALIDATION_ERROR", "message: must be a number")), "x")
    assert (step["observation"], step["reward"], step["terminated"]) == ("message: must be a number", 0.0, False)


@pytest.mark.parametrize(
    ("answer", "failure_class", "problem"),
    [
        (failed("EXECUTION_ERROR", "division by zero"), FailureClass.COMPONENT_FAILED, "division by zero"),
        (failed("CAPACITY_REACHED"), FailureClass.SATURATED, "has no room"),
        (observed(reward=None, done=True), FailureClass.COMPONENT_FAILED, "none of its steps had a reward"),
        (observed(reward=float("inf"), done=True), FailureClass.VERIFIER_FAILED, "finite number"),
        ("{", FailureClass.COMPONENT_FAILED, "something else than JSON"),
        ("[]", FailureClass.COMPONENT_FAILED, r"answered step with \[\]"),
        (None, FailureClass.COMPONENT_FAILED, "ended the connection"),
    ],
)
async def test_a_step_without_an_answer_is_a_failure(answer: Answer, failure_class: FailureClass, problem: str) -> None:
    with pytest.raises(gymq.RolloutError, match=problem) as raised:
        await played(steps(answer), "a")
    assert raised.value.failure_class is failure_class


async def test_a_server_that_hangs_is_a_failure() -> None:
    async def silent(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    application = web.Application()
    application.router.add_get("/ws", silent)
    async with (
        serving(application) as url,
        Harness(OpenEnvironment, {"base_url": url, "message_timeout_s": 0.2}) as env,
    ):
        with pytest.raises(gymq.ComponentFailed, match=r"did not answer reset within 0\.2 s"):
            await env.session(ROW)


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    async with Harness(OpenEnvironment, {"base_url": "http://127.0.0.1:9"}) as env:
        with pytest.raises(gymq.ComponentFailed, match=r"http://127\.0\.0\.1:9/ws cannot be reached"):
            await env.session(ROW)


async def test_a_field_that_the_observation_does_not_have_is_named() -> None:
    with pytest.raises(gymq.ComponentFailed, match="observation_field: the observation has no field 'text'"):
        await played(steps(observed({})), "a", observation_field="text")


async def test_an_address_of_another_kind_is_refused_at_the_start() -> None:
    with pytest.raises(gymq.OptionsError, match="base_url: must begin with http"):
        await OpenEnvironment({"base_url": ["ws://127.0.0.1:9"]}).start()
