"""Three ways to the same engine: in this process, over NATS, over HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from gymq.workers.models.local_vllm_model.serve_args import arguments
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from benchmarks.vllm.engine import ON_CPU, POLICY, options
from gymq.agent import checked_response
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import EXPIRES_S, RoutedCalls, Routes
from gymq.cluster.launch import Cluster
from gymq.protocol import subjects
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Generate, Generated

TIMEOUT_S = 600.0

Ask = Callable[[dict[str, Any], str], Awaitable[dict[str, Any]]]  # with the parameters and the session


@asynccontextmanager
async def in_process(_folder: Path) -> AsyncIterator[Ask]:
    """The worker's own object, without any messages."""
    worker = LocalVLLMModel(options(), name="policy_model")
    await worker.start()
    yield _direct(worker)
    await worker.stop()


@asynccontextmanager
async def over_nats(folder: Path, *, replicas: int = 1, routed: bool = True) -> AsyncIterator[Ask]:
    """The worker in a process of its own, asked over NATS.

    Args:
        routed: as agents ask: each session keeps its replica, and conversations are sent once.
    """
    spec = Instance("policy_model", "models", "local_vllm_model", options(replicas=replicas))
    async with Cluster([spec], folder=folder, log_level="warning") as cluster:
        bus = await Bus.connect(cluster.url, role="operator", name="benchmark")
        calls: Any = Calls(bus)
        if routed:
            routes = Routes(bus)
            await routes.start()
            calls = RoutedCalls(calls, routes)
            await asyncio.sleep(EXPIRES_S / 2)  # until all replicas have published their load

        async def ask(params: dict[str, Any], session: str) -> dict[str, Any]:
            request = Generate(rollout=session, timeout_s=TIMEOUT_S, params=params, session=session)
            reply = await calls.call(subjects.MODEL.of("policy_model"), request)
            assert isinstance(reply, Generated)
            return checked_response(reply.response, params["input"])

        yield ask
        await bus.close()


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Ask]:
    """`vllm serve` in processes of its own, asked by `vllm_model` in this one."""
    worker = LocalVLLMModel(options(), name="policy_model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Not the command `vllm`, which the CPU build leaves broken.
    command = ["-m", "vllm.entrypoints.launchers.api_server.entry", *arguments(worker.options)]
    with (folder / "serve.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--host", "127.0.0.1", "--port", str(port),
            stdout=log, stderr=log, env={**os.environ, **ON_CPU},
        )  # fmt: skip
    try:
        await _until_healthy(f"http://127.0.0.1:{port}/health", server, folder / "serve.log")
        asked = VLLMModel(
            {
                "base_url": f"http://127.0.0.1:{port}/v1",
                "api_key": "none",
                "model": str(POLICY),
                "return_token_id_information": True,
                "request_prompt_and_generation_token_ids": True,
                "uses_reasoning_parser": False,
            }
        )
        await asked.start()
        yield _direct(asked)
        await asked.stop()
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


def _direct(worker: gymq.Model) -> Ask:
    async def ask(params: dict[str, Any], session: str) -> dict[str, Any]:
        return await worker.respond(gymq.ModelRequest(params, session, session, TIMEOUT_S))

    return ask


async def _until_healthy(url: str, server: asyncio.subprocess.Process, log: Path) -> None:
    async with aiohttp.ClientSession() as http:
        while server.returncode is None:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
    said = (await asyncio.to_thread(log.read_text, errors="replace"))[-2000:]
    raise SystemExit(f"vllm serve ended before it was ready:\n{said}")
