"""A model with one long reply, made once: making it again for every call would be what is measured."""

from __future__ import annotations

from typing import Any

import gymq
from benchmarks.workloads import model_reply


class LongReply(gymq.Model):
    max_concurrency = 100_000

    async def start(self) -> None:
        self._reply = model_reply(1, 65_536, 0)

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        return self._reply
