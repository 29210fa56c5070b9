"""The Lean sandbox, at the level of HTTP: what it is sent, and the status and body that it answers."""

import json
from typing import Any

from gymq.outcomes import ComponentFailed

from ..scripted import ScriptedComponents


def install(author: Any, components: ScriptedComponents) -> None:
    async def post(_url: str, body: dict[str, Any], _timeout_s: float) -> tuple[int, str]:
        reply = components.next("lean", body, ComponentFailed)
        if reply.get("raise") == "timeout":
            raise TimeoutError
        if "raise" in reply:
            raise ComponentFailed(reply["raise"])
        return reply["status"], reply["text"] if "text" in reply else json.dumps(reply["json"])

    author.post = post
