"""An engine over HTTP with a known speed, a prefix cache, and the metrics of vLLM; in a process of its own.

It works on so many requests at a time, first come, first served, each for so long. With a cache it first computes the
tokens of the prompt that are not in it, one prompt after another: a conversation that others evicted is computed again.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from gymq.workers.models.simulated_model.prefix_cache import BLOCK_TOKENS, PrefixCache
from gymq.workers.models.simulated_model.reply import prompt_ids
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token

from benchmarks import bridge
from benchmarks.conversing import READ
from tests.support.ports import free_port

# What is said to the engine, so that it calls the tool as often.
_PAGES = re.compile(r"read (\d{1,4}) pages")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True)
class Speed:
    """What an engine can do."""

    slots: int  # requests that it works on at a time
    seconds: float  # that each takes
    cache_blocks: int = 0  # of the prefix cache; 0: there is none, and prompts take no time
    prefill_tokens_per_s: float = 40_000.0


@dataclass
class Asked:
    """What an engine was asked so far."""

    calls: int
    sessions: list[str]
    prompt_tokens: int
    cached_tokens: int
    began_at: float  # of the first call, on the clock of the machine
    ended_at: float  # of the last one


class TimedEngine:
    """Answers with a call of the tool as often as the prompt says, then with a text."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self._cache = PrefixCache(speed.cache_blocks) if speed.cache_blocks else None
        self._prefilling = asyncio.Lock()
        self._free_at = [0.0] * speed.slots  # when each slot is free, the first one first
        self._in_flight = 0
        self._running_tokens = 0
        self._sessions: Counter[str] = Counter()
        self._prompt_tokens = self._cached_tokens = 0
        self._began_at = self._ended_at = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        body = _decode(await request.read())
        if is_examination(body):
            return web.json_response(next_token(body))
        messages = body["messages"]
        self._began_at = self._began_at or time.monotonic()
        self._sessions[request.headers.get("X-Session-ID", "")] += 1
        prompt = prompt_ids({"input": messages, "tools": body.get("tools")})
        self._in_flight += 1
        self._running_tokens += len(prompt)
        try:
            if self._cache is not None:
                async with self._prefilling:
                    num_cached = self._cache.num_cached(prompt)
                    await asyncio.sleep((len(prompt) - num_cached) / self._speed.prefill_tokens_per_s)
                    self._cache.keep(prompt)
                self._prompt_tokens += len(prompt)
                self._cached_tokens += num_cached
            await self._take_a_slot()
        finally:
            self._in_flight -= 1
            self._running_tokens -= len(prompt)
        self._ended_at = time.monotonic()
        return web.json_response(_completion(body["model"], messages, len(prompt)))

    async def _take_a_slot(self) -> None:
        now = asyncio.get_running_loop().time()
        done_at = max(now, self._free_at[0]) + self._speed.seconds
        heapq.heapreplace(self._free_at, done_at)
        await asyncio.sleep(done_at - now)

    async def metrics(self, _: web.Request) -> web.Response:
        running = min(self._in_flight, self._speed.slots)
        num_tokens = self._speed.cache_blocks * BLOCK_TOKENS
        used = min(1.0, self._running_tokens / num_tokens) if num_tokens else 0.0
        lines = [
            f'vllm:num_requests_running{{engine="0"}} {running}',
            f'vllm:num_requests_waiting{{engine="0"}} {self._in_flight - running}',
            f'vllm:kv_cache_usage_perc{{engine="0"}} {used}',
        ]
        if num_tokens:
            labels = f'block_size="{BLOCK_TOKENS}",engine="0",num_gpu_blocks="{self._speed.cache_blocks}"'
            lines.append(f"vllm:cache_config_info{{{labels}}} 1.0")
        return web.Response(text="\n".join(lines) + "\n")

    async def asked(self, _: web.Request) -> web.Response:
        tokens = self._prompt_tokens, self._cached_tokens
        asked = Asked(self._sessions.total(), [*self._sessions], *tokens, self._began_at, self._ended_at)
        return web.json_response(asdict(asked))


def _completion(model: str, messages: list[dict[str, Any]], num_prompt_tokens: int) -> dict[str, Any]:
    read = sum(message["role"] == "tool" for message in messages)
    pages = _PAGES.search(json.dumps(messages[0]["content"]))
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if pages is not None and read < int(pages.group(1)):
        function = {"name": "read", "arguments": "{}"}
        calls = [{"id": f"call_{read}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    usage = {"prompt_tokens": num_prompt_tokens, "completion_tokens": 8, "total_tokens": num_prompt_tokens + 8}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}


async def serve(speed: Speed, port: int, ready: Any) -> None:
    engine = TimedEngine(speed)
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/chat/completions", engine.answer)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_get("/asked", engine.asked)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, bridge.HOST, port, backlog=16_384).start()
    ready.set()
    await asyncio.Event().wait()


@asynccontextmanager
async def engines(*speeds: Speed) -> AsyncIterator[list[str]]:
    """Run engines; gives their URLs."""
    async with AsyncExitStack() as stack:
        urls = []
        for speed in speeds:
            port = free_port(bridge.HOST)
            process = bridge.in_process(serve, speed, port)
            stack.callback(process.join)
            stack.callback(process.terminate)
            urls.append(f"http://{bridge.HOST}:{port}/v1")
        yield urls


async def asked_of(url: str) -> Asked:
    """Return what an engine was asked so far."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(url.removesuffix("/v1") + "/asked") as answer,
    ):
        return Asked(**await answer.json())


def engine_options(urls: list[str]) -> dict[str, Any]:
    """Return the options of a worker that asks these engines."""
    given = {"base_url": urls, "api_key": "none", "model": "bench"}
    return given | {"return_token_id_information": False, "uses_reasoning_parser": False}


def reading(number: int, calls: int) -> bytes:
    """Return the row of a rollout with so many model calls."""
    prompt = f"Reader {number}: read {calls - 1} pages of the book."
    params = {"input": [{"role": "user", "content": prompt}], "tools": [READ]}
    return json.dumps({"responses_create_params": params}).encode() + b"\n"
