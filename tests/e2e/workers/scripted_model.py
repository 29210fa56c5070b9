"""A policy that does what `metadata.script` of the request asks for, and notes every call in a file."""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import gymq
from gymq.testing import function_call, reply


class ScriptedModel(gymq.Model):
    """Says "done"; the script may ask for failures, waiting, size, tool calls and nonsense."""

    class Options(gymq.WorkerOptions):
        calls: Path  # one line a call: the rollout's name
        api_key: str | None = None

    max_concurrency = 100_000
    is_client = True

    async def start(self) -> None:
        self._file = os.open(self.options.calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._calls: Counter[str] = Counter()

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        os.write(self._file, f"{request.rollout}\n".encode())
        self._calls[request.rollout] += 1
        script = json.loads((request.params.get("metadata") or {}).get("script", "{}"))
        await asyncio.sleep(script.get("model_s", 0.0))
        while (awaited := script.get("model_waits_for")) and not Path(awaited).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
        if self._calls[request.rollout] <= script.get("model_fails", 0):
            raise gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, f"the engine refuses {self.options.api_key}")
        if script.get("model_nonsense"):
            return {"no": "response"}
        if script.get("model_echoes_key"):
            return reply(f"the key is {self.options.api_key}, and so are the headers")
        turn = sum(item.get("type") == "function_call" for item in request.params["input"])
        tools = script.get("tools", [])
        if turn < len(tools):
            return reply(function_call(tools[turn], {"amount": 1}, f"call_{turn}"))
        return reply("done" + random.Random(0).randbytes(script.get("reply_bytes", 0) // 2).hex())
