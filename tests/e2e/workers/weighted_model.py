"""A policy whose answer is its weights, after a call of `add` if that is offered. Files make it wait and note it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import gymq
from gymq.responses import is_generated
from gymq.testing import function_call, reply


class WeightedModel(gymq.Model):
    """Says what its weights are."""

    class Options(gymq.WorkerOptions):
        folder: Path

    weights = "as started"

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        if request.params.get("tools") and not any(is_generated(item) for item in request.params["input"]):
            return reply(self.weights, function_call("add", {"amount": 1}))
        if (self.options.folder / "hold").exists():
            (self.options.folder / "held").touch()
        while (self.options.folder / "hold").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return reply(self.weights)

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        assert update.weights is not None
        text = update.weights[8 + int.from_bytes(update.weights[:8], "little") :].decode()
        if text == "broken":
            raise ValueError("a tensor is missing")
        with (self.options.folder / "loading").open("a") as file:
            file.write(f"{os.getpid()}\n")
        while (self.options.folder / "wait").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.weights = text
