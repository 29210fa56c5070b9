"""Make rows: pictures with three to five circles of one size that do not touch, and the colour to click."""

from __future__ import annotations

import base64
import io
import math
import random
from collections.abc import Iterator
from typing import Any

import gymq

try:
    from PIL import Image, ImageDraw
except ImportError:
    raise gymq.OptionsError('Pillow is not installed: pip install "gymq[resources]"') from None

SIDE = 1000  # pixels of a picture, which is square
COLORS = ("red", "blue", "green", "orange", "purple", "brown", "gray", "black", "pink", "cyan")

CLICK = {
    "type": "function",
    "name": "click",
    "description": "Click a pixel of the picture, counted from the top left corner.",
    "parameters": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x", "y"],
        "additionalProperties": False,
    },
    "strict": True,
}


def make_rows(wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
    """Yield tasks; they have no length in tokens."""
    if wanted.tokens is not None:
        raise gymq.OptionsError("a picture has no length in tokens")
    rng = random.Random(wanted.seed)
    for _ in range(wanted.count):
        yield make_row(rng)


def make_row(rng: random.Random) -> dict[str, Any]:
    """Return one task: a picture, its circles, and which of them to click."""
    circles = make_circles(rng)
    target = rng.choice(circles)["color"]
    text = f"Click the {target} circle. The picture is {SIDE} pixels wide and {SIDE} pixels high."
    content = [
        {"type": "input_image", "image_url": data_uri(draw(circles)), "detail": "auto"},
        {"type": "input_text", "text": text},
    ]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": content}], "tools": [CLICK]},
        "circles": circles,
        "target_color": target,
        "agent_ref": {"type": "responses_api_agents", "name": "circle_click_simple_agent"},
    }


def make_circles(rng: random.Random) -> list[dict[str, Any]]:
    """Circles of one radius and different colours, inside the picture and apart from each other."""
    radius = rng.randint(60, 150)
    colors = rng.sample(COLORS, rng.randint(3, 5))
    while True:
        centres = [(rng.randint(radius, SIDE - radius), rng.randint(radius, SIDE - radius)) for _ in colors]
        pairs = ((a, b) for position, a in enumerate(centres) for b in centres[:position])
        if all(math.dist(a, b) > 2 * radius for a, b in pairs):
            return [
                {"x": x, "y": y, "radius": radius, "color": color}
                for (x, y), color in zip(centres, colors, strict=True)
            ]


def draw(circles: list[dict[str, Any]]) -> Image.Image:
    """Draw the circles on white."""
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(picture)
    for circle in circles:
        pen.circle((circle["x"], circle["y"]), circle["radius"], fill=circle["color"])
    return picture


def data_uri(picture: Image.Image) -> str:
    """Return the picture as the text of an `input_image` part."""
    png = io.BytesIO()
    picture.quantize(16).save(png, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
