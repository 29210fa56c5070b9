"""What the recorded cases cannot say: odd arguments, the published tool, sessions side by side."""

import asyncio
import json

import pytest
from gymq.workers.resources.example_single_tool_call.worker import Weather

import gymq
from gymq.testing import Harness, prompt, reply

ROW = prompt("weather in Bern?")


@pytest.mark.parametrize("city", ["", " Bern ", 'with "quotes"', "{city}", "two\nlines", "Zürich ❄", "x" * 10_000])
async def test_the_city_is_put_in_unchanged(city):
    async with Harness(Weather) as env:
        result = await (await env.session(ROW)).call("get_weather", {"city": city})
    assert json.loads(result.output) == {"city": city, "weather_description": f"The weather in {city} is cold."}


async def test_half_of_a_surrogate_pair_does_not_break_the_answer():
    async with Harness(Weather) as env:
        result = await (await env.session(ROW)).call("get_weather", {"city": "\ud800"})
    assert result.status == 200
    result.output.encode()


@pytest.mark.parametrize("arguments", [{}, {"city": 5}, {"city": None}, {"city": ["Bern"]}, ["Bern"], "Bern", None])
async def test_arguments_that_do_not_fit_are_refused_and_the_next_call_works(arguments):
    async with Harness(Weather) as env:
        session = await env.session(ROW)
        assert (await session.call("get_weather", arguments)).status == 422
        assert (await session.call("get_weather", {"city": "Bern", "unit": "C"})).status == 200


@pytest.mark.parametrize("name", ["Get_Weather", "get_wether", "verify", ""])
async def test_another_tool_does_not_exist(name):
    async with Harness(Weather) as env:
        assert (await (await env.session(ROW)).call(name, {"city": "Bern"})).status == 404


async def test_many_sessions_at_once_get_their_own_answers():
    async with Harness(Weather) as env:
        sessions = [await env.session(ROW) for _ in range(50)]
        results = await asyncio.gather(
            *(session.call("get_weather", {"city": f"town {n}"}) for n, session in enumerate(sessions))
        )
    assert [json.loads(result.output)["city"] for result in results] == [f"town {n}" for n in range(50)]


async def test_a_row_with_an_unknown_parameter_is_refused():
    async with Harness(Weather) as env:
        with pytest.raises(gymq.InvalidTask, match="temprature"):
            await env.verify(prompt("weather?", temprature=1), reply("cold"))


def test_the_published_tool_asks_for_a_city():
    schema = Weather.tools["get_weather"].schema()
    assert schema["parameters"]["required"] == ["city"]
    assert schema["parameters"]["properties"]["city"]["type"] == "string"
