"""The gateway of an agent: a base URL and a key for one rollout."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest
from yarl import URL

import gymq
from gymq import redaction
from gymq.ext.gateway import Admission, Gateway, asks_through
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass
from gymq.redaction import redact
from gymq.testing import reply
from tests.support.engine import say
from tests.support.environments import Grader
from tests.support.waiting import until
from tests.support.world import World, new_client


async def ask(params: dict[str, Any]) -> dict[str, Any]:
    return reply(f"{len(params['input'])} items")


async def test_a_program_asks_the_model_with_the_url_and_key_it_was_given() -> None:
    async with Gateway() as gateway, gateway.admit("run/1/2", ask) as admission:
        async with openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key) as sdk:
            answer = await sdk.responses.create(model="any", input="hi")
            chat = await sdk.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
        assert answer.output_text == chat.choices[0].message.content == "1 items"
        assert (admission.num_calls, admission.num_failed) == (2, 0)


async def test_usage_without_details_and_repeated_ids_reach_a_program_as_sdks_expect_them() -> None:
    call = {"type": "function_call", "id": "bash:0", "call_id": "bash:0", "name": "bash", "arguments": "{}"}
    asked: list[list[str]] = []

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        asked.append([item["call_id"] for item in params["input"] if "call_id" in item])
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "input_tokens_details": None}
        return {**reply(), "output": [call], "usage": usage}

    conversation: list[Any] = [{"role": "user", "content": "hi"}]
    async with (
        Gateway() as gateway,
        gateway.admit("run/1/2", ask) as admission,
        openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key) as sdk,
    ):
        for _ in range(3):
            answer = await sdk.responses.create(model="any", input=conversation)
            [said] = answer.output
            assert said.type == "function_call"
            done = {"type": "function_call_output", "call_id": said.call_id, "output": "done"}
            conversation += [said.model_dump(exclude_none=True), done]
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cached_tokens == 0
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert len({item["call_id"] for item in conversation[1:]}) == 3
    assert asked[-1] == ["bash:0"] * 4


async def test_a_program_may_continue_a_reply_by_its_id() -> None:
    asked: list[list[str]] = []

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        assert "previous_response_id" not in params
        asked.append([item["role"] for item in params["input"]])
        return {**reply("said"), "id": f"resp_{len(asked)}"}

    async with (
        Gateway() as gateway,
        gateway.admit("run/1/2", ask) as admission,
        gateway.admit("run/1/3", ask) as other,
        openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key) as sdk,
        openai.AsyncOpenAI(base_url=other.openai_url, api_key=other.api_key) as stranger,
    ):
        first = await sdk.responses.create(model="any", input="one")
        second = await sdk.responses.create(model="any", input="two", previous_response_id=first.id)
        await sdk.responses.create(model="any", input="three", previous_response_id=second.id)
        await sdk.responses.create(model="any", input="two again", previous_response_id=first.id)
        with pytest.raises(openai.UnprocessableEntityError, match="no reply that is kept here has the id 'resp_1'"):
            await stranger.responses.create(model="any", input="two", previous_response_id=first.id)
    turn = ["user", "assistant"]
    assert asked == [["user"], [*turn, "user"], [*turn, *turn, "user"], [*turn, "user"]]


async def post(url: str, key: str, body: Any) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as answer:
        return answer.status


async def test_the_key_of_one_rollout_does_not_open_another() -> None:
    async with Gateway() as gateway, gateway.admit("one", ask) as one, gateway.admit("two", ask) as two:
        assert await post(f"{one.openai_url}/responses", two.api_key, {"input": "x"}) == 401
        assert await post(f"{one.openai_url}/responses", one.api_key, {"input": "x"}) == 200
        assert await post(f"{one.openai_url}x/responses", one.api_key, {"input": "x"}) == 404


async def test_a_rollout_that_is_over_is_not_served_any_more() -> None:
    async with Gateway() as gateway:
        async with gateway.admit("one", ask) as one:
            pass
        assert await post(f"{one.openai_url}/responses", one.api_key, {"input": "x"}) == 401


async def test_the_end_of_a_rollout_stops_its_calls() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def never(params: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return reply("too late")

    async with Gateway() as gateway:
        async with gateway.admit("one", never) as one:
            url = f"{one.openai_url}/responses"
            asking = asyncio.create_task(post(url, one.api_key, {"input": "x"}))
            await begun.wait()
        await stopped.wait()
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_a_request_that_began_before_the_end_of_a_rollout_asks_nothing_after_it() -> None:
    asked: list[Any] = []

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return reply("too late")

    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "?"}]}).encode()
    async with Gateway() as gateway:
        async with gateway.admit("r", ask) as admission:
            url = URL(admission.openai_url)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Authorization: Bearer {admission.api_key}\r\n\r\n".encode() + body[:5])
            await until(lambda: admission.in_flight)
        writer.write(body[5:])
        assert await reader.readline() == b""
        writer.close()
    assert asked == []


async def test_calls_of_fifty_at_once_and_one_of_ten_megabytes_are_answered() -> None:
    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        return reply(str(len(params["input"][0]["content"])))

    async with (
        Gateway() as gateway,
        gateway.admit("r", ask) as admission,
        openai.AsyncOpenAI(base_url=admission.openai_url, api_key=admission.api_key, max_retries=0) as sdk,
    ):

        async def length_of(text: str) -> str | None:
            given: Any = [{"role": "user", "content": text}]
            return (await sdk.chat.completions.create(model="any", messages=given)).choices[0].message.content

        assert await asyncio.gather(*(length_of("x" * n) for n in range(1, 51))) == [str(n) for n in range(1, 51)]
        assert await length_of("x" * 10**7) == str(10**7)


async def test_of_the_calls_of_one_rollout_few_are_read_at_once() -> None:
    asked, release = 0, asyncio.Event()

    async def wait(params: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await release.wait()
        return reply("x")

    async with Gateway() as gateway, gateway.admit("one", wait) as one, gateway.admit("two", ask) as two:
        many = [
            asyncio.create_task(post(f"{one.openai_url}/responses", one.api_key, {"input": "x"})) for _ in range(20)
        ]
        await until(lambda: len(one.in_flight) == 20)
        assert await post(f"{two.openai_url}/responses", two.api_key, {"input": "x"}) == 200
        assert asked == 8
        release.set()
        assert set(await asyncio.gather(*many)) == {200}


async def test_failed_calls_are_counted() -> None:
    async def fail(params: dict[str, Any]) -> dict[str, Any]:
        raise RolloutError(FailureClass.MODEL_FAILED, "out of order")

    async with Gateway() as gateway, gateway.admit("one", fail) as one:
        assert await post(f"{one.openai_url}/responses", one.api_key, {"input": "x"}) == 500
        assert (one.num_calls, one.num_failed) == (0, 1)


def test_the_key_is_not_shown() -> None:
    assert "hush" not in repr(Admission("r", "http://h", "hush"))


async def test_keys_are_hidden_but_cost_no_log_line_for_good() -> None:
    async with Gateway() as gateway:
        hidden_before = len(redaction._hidden)
        for _ in range(2 * redaction.MOST_ENDED):
            async with gateway.admit("one", ask) as one:
                assert redact(f"refused: {one.api_key}") == "refused: ***"
        assert redact(f"the program ended with {one.api_key}") == "the program ended with ***"
        assert len(redaction._hidden) <= hidden_before + redaction.MOST_ENDED


class Outside(gymq.Agent):
    """An agent whose conversation is held by a program that only knows a URL and a key."""

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        async with Gateway() as gateway, gateway.admit(rollout.id, asks_through(rollout)) as admission:
            base_url, key = admission.openai_url, admission.api_key
            async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as sdk:
                for turn in range(2):
                    await sdk.chat.completions.create(
                        model="any", messages=[{"role": "user", "content": f"turn {turn}"}]
                    )
        await rollout.respond()


async def test_an_agent_lets_a_program_ask_in_the_name_of_its_rollout(empty_world: World) -> None:
    world = empty_world
    await world.add_model()
    await world.add_resources("grader", Grader())
    await world.add_agent("asker", "grader", agent=Outside)
    await world.start_bridge()
    world.engine.turn = lambda body: say(f"heard {body['messages'][-1]['content']}")
    async with new_client(world) as client:
        result = await client.result(world.row("own words"))
    said = [json.dumps(request["messages"][-1]["content"]) for request in world.engine.requests]
    assert ["turn 0" in said[0], "turn 1" in said[1], "own words" in said[2]] == [True] * 3
    assert result["reward"] == 1.0
    await until(lambda: not world.bridge or not world.bridge.rollouts.num_waiting)
