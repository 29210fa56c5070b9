"""A sandbox that takes one proof of the first example row, and no other program, for complete."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from gymq.workers.resources.math_formal_lean.tests import lean_servers
from gymq.workers.resources.math_formal_lean.worker import FormalProofs

PROOF = "theorem two_more : 3 + 2 = 5 := by\n  norm_num"


async def compile_it(request: web.Request) -> web.StreamResponse:
    if PROOF in (await request.json())["generated_code"]:
        return await lean_servers.sandbox(request)
    answer = {"process_status": "failed", "stdout": "", "stderr": f"{lean_servers.PATH}:1:0: error: unsolved goals\n"}
    return web.json_response(answer)


@asynccontextmanager
async def mocked(worker: FormalProofs) -> AsyncIterator[None]:
    async with lean_servers.serving("/execute", compile_it) as (host, port):
        worker.options.sandbox_host, worker.options.sandbox_port = host, port
        yield
