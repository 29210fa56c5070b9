"""Tavily's answers from a case's script."""

from typing import Any

import pytest
from gymq.workers.resources.tavily_search.service import ServiceError, UsageLimit

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    pytest.importorskip("tavily", reason='needs pip install "gymq[tavily]"')

    async def request(call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        sent = {"url" if name == "urls" else name: value for name, value in arguments.items()}
        scripted = components.next("tavily", {"call": call, **sent}, ServiceError)
        if "raise" in scripted:
            raise UsageLimit if scripted["raise"] == "usage_limit" else ServiceError(scripted["raise"])
        return scripted["reply"]

    async def no_sleep(_seconds: float) -> None:
        pass

    author.service.request = request
    author.service.sleep = no_sleep
