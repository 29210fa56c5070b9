"""example_single_tool_call: one tool, and a verifier that always pays. The smallest environment with a tool."""

from __future__ import annotations

from typing import Any

import gymq


class Weather(gymq.Resources[gymq.Row]):
    """Reward 1 for every response."""

    reward_range = (1.0, 1.0)

    @gymq.tool
    async def get_weather(self, city: str) -> dict[str, str]:
        """The weather in a city."""
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    async def verify(self, request: gymq.VerifyRequest[Any]) -> gymq.Verdict:
        return gymq.Verdict(1.0)
