"""An engine that answers at once over HTTP, and workloads that ask it through the bridge's `/run`.

The engine has a process of its own, whose CPU time is not counted; nor is that of the client that posts to the bridge.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
from aiohttp import web
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token

from benchmarks import bridge
from benchmarks.measure import Measured, cpu_s, family, resident_bytes
from benchmarks.ours import instances
from benchmarks.workloads import Workload, model_reply
from gymq.cluster.launch import Cluster
from gymq.protocol.instances import Instance
from tests.support.ports import free_port

NAME = "bench"  # of the model at the endpoint

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@cache
def completion(turns: int, tokens: int, num_tool_results: int) -> bytes:
    """The body of a chat completion, as vLLM writes it with `return_token_ids` and tokens as ids."""
    (item,) = model_reply(turns, tokens, 2 * num_tool_results)["output"]
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "tool_calls": []}
    if item["type"] == "message":
        message["content"] = item["content"][0]["text"]
    else:
        function = {"name": item["name"], "arguments": item["arguments"]}
        message["tool_calls"] = [{"id": item["call_id"], "type": "function", "function": function}]
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 20, "completion_tokens": max(2, tokens), "total_tokens": 20 + max(2, tokens)}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": NAME, "choices": [choice], "usage": usage}
    if tokens:
        ids = item["generation_token_ids"].tolist()
        pairs = zip(ids, item["generation_log_probs"].tolist(), strict=True)
        choice["logprobs"] = {
            "content": [
                {"token": f"token_id:{number}", "logprob": log_prob, "bytes": [32, 97, 98], "top_logprobs": []}
                for number, log_prob in pairs
            ]
        }
        choice["token_ids"] = ids
        answer["prompt_token_ids"] = item["prompt_token_ids"].tolist()
    return msgspec.json.encode(answer)


async def _answer(request: web.Request) -> web.Response:
    body = _decode(await request.read())
    if is_examination(body):  # of a worker that learns how the engine samples
        return web.json_response(next_token(body))
    asked = body["metadata"]
    latency_s = float(asked["latency_s"])
    if latency_s:
        await asyncio.sleep(latency_s)
    done = sum(message["role"] == "tool" for message in body["messages"])
    answer = completion(int(asked["turns"]), int(asked["tokens"]), done)
    return web.Response(body=answer, content_type="application/json")


async def serve_engine(port: int, ready: Any) -> None:
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, bridge.HOST, port, backlog=16_384).start()
    ready.set()
    await asyncio.Event().wait()


@asynccontextmanager
async def engine() -> AsyncIterator[tuple[str, int]]:
    """Run the engine; gives its URL and the id of its process."""
    port = free_port(bridge.HOST)
    process = bridge.in_process(serve_engine, port)
    try:
        assert process.pid is not None
        yield f"http://{bridge.HOST}:{port}/v1", process.pid
    finally:
        process.terminate()
        process.join()


def counted(engine_pid: int) -> list[psutil.Process]:
    """All processes but the engine."""
    return [process for process in family(os.getpid()) if process.pid != engine_pid]


async def run(workload: Workload, folder: Path) -> Measured:
    """Post the workload's rows to the bridge of a warm cluster."""
    async with engine() as (url, engine_pid):
        options = {
            "base_url": url,
            "api_key": "none",
            "model": NAME,
            "return_token_id_information": workload.tokens > 0,
            "uses_reasoning_parser": False,
        }
        _, *others = instances(workload)
        workers = [Instance("bench_model", "models", "vllm_model", options), *others]
        async with Cluster(workers, folder=folder, log_level="warning", layout=workload.layout) as cluster:
            port = free_port(bridge.HOST)
            process = bridge.in_process(bridge.serve_bridge, cluster.url, port)
            try:
                await _post_all(workload, port, max(64, workload.window))
                processes = [one for one in counted(engine_pid) if one.pid != os.getpid()]
                cpu, started = cpu_s(processes), time.perf_counter()
                latencies = await _post_all(workload, port, workload.rollouts)
                wall = time.perf_counter() - started
                peak = resident_bytes(processes)
                return Measured(workload.rollouts, wall, cpu_s(processes) - cpu, peak, latencies)
            finally:
                process.terminate()
                process.join()


async def _post_all(workload: Workload, port: int, rollouts: int) -> list[float]:
    """Post rows, as many at a time as the workload says; the seconds that each took."""
    rows = iter(range(rollouts))
    latencies: list[float] = []

    async def one_after_another(session: aiohttp.ClientSession) -> None:
        for number in rows:
            started = time.perf_counter()
            async with session.post(
                f"http://{bridge.HOST}:{port}/run", data=workload.row(number), headers=bridge.JSON
            ) as answer:
                body = await answer.read()
            if answer.status != 200 or b'"reward":1.0' not in body:
                raise RuntimeError(f"{answer.status}: {body[:500]!r}")
            latencies.append(time.perf_counter() - started)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(one_after_another(session) for _ in range(workload.window)))
    return latencies
