"""The model of the benchmarks: the cheapest there can be."""

from __future__ import annotations

import asyncio
from typing import Any

import gymq
from benchmarks.workloads import model_reply


class BenchModel(gymq.Model):
    max_concurrency = 100_000
    is_client = True

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        told = request.params["metadata"]
        latency_s = float(told["latency_s"])
        if latency_s:
            await asyncio.sleep(latency_s)
        return model_reply(int(told["turns"]), int(told["tokens"]), len(request.params["input"]) - 1)
