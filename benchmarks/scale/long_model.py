"""A model whose replies are as long as their request says, as an engine's client gives them: with lists of numbers."""

from __future__ import annotations

from typing import Any

import gymq
from benchmarks.workloads import model_reply


class LongModel(gymq.Model):
    """The same reply for each length, made once; whatever packs it does so for each call."""

    max_concurrency = 100_000

    async def start(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        tokens = int(request.params["metadata"]["tokens"])
        if tokens not in self._items:
            (item,) = model_reply(1, tokens, 0)["output"]
            self._items[tokens] = {
                name: value.tolist() if hasattr(value, "tolist") else value for name, value in item.items()
            }
        return {**model_reply(1, 0, 0), "output": [dict(self._items[tokens])]}
