"""What the recorded cases cannot say: whatever a model may write as a click there is a verdict; made rows fit."""

import base64
import io
import itertools
import json
import math
import random
from typing import Any

import pytest
from gymq.workers.resources.circle_click.generate import SIDE, make_circles, make_row
from gymq.workers.resources.circle_click.worker import CircleClick
from PIL import Image, ImageColor

import gymq
from gymq.protocol.codec import encode
from gymq.protocol.messages import Verified
from gymq.testing import Harness, function_call, prompt, reply

CIRCLES = [
    {"x": 0, "y": 0, "radius": 50, "color": "red"},
    {"x": 500, "y": 0, "radius": 50, "color": "red"},
    {"x": 300, "y": 0, "radius": 0.5, "color": "blue"},
]


async def verdict_on(arguments: Any, **members: Any) -> gymq.Verdict:
    row = {**prompt("Click the red circle."), "circles": CIRCLES, "target_color": "red", **members}
    async with Harness(CircleClick) as env:
        verdict = await env.verify(row, reply(function_call("click", arguments)))
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))
    return verdict


@pytest.mark.parametrize(
    ("arguments", "x", "y"),
    [
        ("", None, None),
        ("{oops", None, None),
        ("[1, 2]", None, None),
        ("null", None, None),
        ("{}", None, None),
        ('{"y": 1}', None, None),
        ('{"x": 1}', 1, None),
        ('{"x": "1.5", "y": 1}', None, None),
        ('{"x": 1, "y": null}', 1, None),
        ('{"x": [1], "y": 1}', None, None),
        ('{"x": NaN, "y": 1}', None, None),
        ('{"x": 1, "y": 1e400}', 1, None),
        (f'{{"x": {10**300}, "y": 1}}', None, None),
        (f'{{"x": 1, "y": -{10**19}}}', 1, None),
        ('{"x": ' + "9" * 5_000 + "}", None, None),
        ('{"x": ' + "[" * 100_000, None, None),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_click_that_cannot_be_read_hits_nothing(arguments, x, y):
    verdict = await verdict_on(arguments)
    assert (verdict.reward, verdict.fields) == (0.0, {"clicked_x": x, "clicked_y": y, "hit": False})


@pytest.mark.parametrize(
    ("click", "x", "y"),
    [
        ({"x": -0.9, "y": 49.9}, 0, 49),
        ({"x": True, "y": False}, 1, 0),
        ({"x": " 1_0 ", "y": "-3"}, 10, -3),
        ({"x": 30, "y": 40}, 30, 40),
    ],
)
async def test_coordinates_are_converted_as_python_does(click, x, y):
    verdict = await verdict_on(click)
    assert (verdict.reward, verdict.fields) == (1.0, {"clicked_x": x, "clicked_y": y, "hit": True})


async def test_only_the_first_circle_of_the_colour_counts():
    assert (await verdict_on({"x": 500, "y": 0})).reward == 0.0


@pytest.mark.parametrize("members", [{"target_color": "Red"}, {"target_color": ""}, {"circles": []}])
async def test_without_a_circle_of_the_colour_nothing_is_hit(members):
    assert (await verdict_on({"x": 0, "y": 0}, **members)).reward == 0.0


async def test_a_response_without_a_click_scores_0():
    row = {**prompt("Click."), "circles": CIRCLES, "target_color": "red"}
    async with Harness(CircleClick) as env:
        verdict = await env.verify(row, reply(function_call("Click", {"x": 0, "y": 0}), "(0, 0)"))
    assert verdict.fields == {"clicked_x": None, "clicked_y": None, "hit": False}


async def test_a_call_without_arguments_scores_0():
    item = function_call("click", "")
    del item["arguments"]
    async with Harness(CircleClick) as env:
        assert (await env.verify({**prompt("Click."), "circles": CIRCLES}, reply(item))).reward == 0.0


@pytest.mark.parametrize("missing", ["x", "y", "radius", "color"])
async def test_a_circle_that_lacks_a_member_is_refused(missing):
    circle = {name: value for name, value in CIRCLES[0].items() if name != missing}
    with pytest.raises(gymq.InvalidTask, match=missing):
        await verdict_on({"x": 0, "y": 0}, circles=[circle])


@pytest.mark.parametrize("arguments", [{"x": None, "y": [1]}, {"x": "left", "y": {}, "z": 1}])
async def test_the_tool_gives_back_any_two_values(arguments):
    async with Harness(CircleClick) as env:
        result = await (await env.session(prompt("Click."))).call("click", arguments)
    assert (result.status, json.loads(result.output)) == (200, {"x": arguments["x"], "y": arguments["y"]})


@pytest.mark.parametrize("arguments", [{"x": 1}, {"y": 1}, {}, None, [1, 2]])
async def test_the_tool_refuses_a_call_without_both_coordinates(arguments):
    async with Harness(CircleClick) as env:
        assert (await (await env.session(prompt("Click."))).call("click", arguments)).status == 422


async def test_in_a_made_row_the_target_can_be_seen_and_hit():
    rng = random.Random(1)
    for _ in range(3):
        row = make_row(rng)
        target = next(circle for circle in row["circles"] if circle["color"] == row["target_color"])
        image_url = row["responses_create_params"]["input"][0]["content"][0]["image_url"]
        picture = Image.open(io.BytesIO(base64.b64decode(image_url.partition(",")[2]))).convert("RGB")
        assert picture.size == (SIDE, SIDE)
        assert picture.getpixel((target["x"], target["y"])) == ImageColor.getrgb(target["color"])
        async with Harness(CircleClick) as env:
            verdict = await env.verify(row, reply(function_call("click", {"x": target["x"], "y": target["y"]})))
        assert verdict.reward == 1.0


def test_circles_of_a_made_row_lie_inside_the_picture_and_apart():
    rng = random.Random(2)
    for _ in range(20):
        circles = make_circles(rng)
        assert 3 <= len(circles) <= 5
        assert len({circle["color"] for circle in circles}) == len(circles)
        assert len({circle["radius"] for circle in circles}) == 1
        radius = circles[0]["radius"]
        assert all(radius <= circle[axis] <= SIDE - radius for circle in circles for axis in "xy")
        centres = [(circle["x"], circle["y"]) for circle in circles]
        assert all(math.dist(a, b) > 2 * radius for a, b in itertools.combinations(centres, 2))
