"""A policy whose answer is its weights. Loading notes its process in a file, and waits while another file is there."""

import asyncio
import os
from pathlib import Path
from typing import Any

import gymq
from gymq.testing import reply


class WeightedModel(gymq.Model):
    """Says what its weights are."""

    class Options(gymq.WorkerOptions):
        folder: Path

    options: Options
    weights = "as started"

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
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
