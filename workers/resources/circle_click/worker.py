"""circle_click: the model sees a picture with coloured circles and clicks the one of the named colour.

What counts is the first click in the response, not what the tool answered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic

import gymq


class Circle(pydantic.BaseModel):
    x: float
    y: float
    radius: float
    color: str


class CirclesRow(gymq.Row):
    circles: list[Circle] = pydantic.Field([])
    target_color: str = ""


class CircleClick(gymq.Resources[CirclesRow]):
    """Reward 1 if the first click hits the circle of the target colour."""

    reward_range = (0.0, 1.0)

    @classmethod
    def make_rows(cls, wanted: gymq.RowsWanted) -> Iterator[dict[str, Any]]:
        """Make pictures."""
        from gymq.workers.resources.circle_click.generate import make_rows

        return make_rows(wanted)

    @gymq.tool
    async def click(self, x: Any, y: Any) -> dict[str, Any]:
        """Click a pixel of the picture, counted from the top left corner."""
        return {"x": x, "y": y}

    async def verify(self, request: gymq.VerifyRequest[CirclesRow]) -> gymq.Verdict:
        row = request.row
        x, y = first_click(request.function_calls)
        target = next((circle for circle in row.circles if circle.color == row.target_color), None)
        hit = target is not None and x is not None and y is not None and contains(target, x, y)
        return gymq.Verdict(float(hit), clicked_x=x, clicked_y=y, hit=hit)


def first_click(calls: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """Return where the first call of `click` clicks; None from the first coordinate on that cannot be read."""
    call = next((call for call in calls if call["name"] == "click"), None)
    try:
        arguments = json.loads(call.get("arguments") or "") if call else None
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(arguments, dict):
        return None, None
    x = pixel(arguments.get("x"))
    return x, None if x is None else pixel(arguments.get("y"))


def pixel(coordinate: Any) -> int | None:
    """Return a coordinate as Python's `int` converts it.

    None if it does not, or beyond 64 bits, which no message carries.
    """
    try:
        number = int(coordinate)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def contains(circle: Circle, x: int, y: int) -> bool:
    """Return whether a point is in a circle; its rim belongs to it."""
    return math.hypot(x - circle.x, y - circle.y) <= circle.radius
