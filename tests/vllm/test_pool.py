"""Two real vLLM servers as one pool: one that works on one request at a time, and one that is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from gymq.workers.models.openai_model.tests.mock_server import starting
from gymq.workers.models.vllm_model.engine_metrics import EngineReport, read_metrics
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq.cluster.server.address import hold_port
from tests.support.waiting import until

from .tiny_policy import MAX_MODEL_LEN, ON_CPU, POLICY

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.asyncio(loop_scope="session")]

START_S = 600.0  # on a machine that does much else
CACHE_TOKENS = 8192
SERVER = {
    "model": POLICY,
    "served-model-name": "tiny",
    "host": "127.0.0.1",
    "dtype": "float32",
    "max-model-len": MAX_MODEL_LEN,
    "num-gpu-blocks-override": CACHE_TOKENS // 32,
    "block-size": 32,
    "kv-cache-memory-bytes": 64 << 20,
    "distributed-executor-backend": "uni",
}


class Server:
    """A process of vLLM's own server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.root = f"http://127.0.0.1:{port}"
        self._log = log

    def report(self) -> EngineReport | None:
        assert self.process.poll() is None, f"vLLM ended:\n{self._log.read_text()[-4000:]}"
        with suppress(OSError), urllib.request.urlopen(f"{self.root}/metrics", timeout=10) as answer:
            return read_metrics(answer.read().decode())
        return None


@contextmanager
def server(log: Path, max_num_seqs: int) -> Iterator[Server]:
    with hold_port() as held:
        port = held.getsockname()[1]
        options = {**SERVER, "port": port, "max-num-seqs": max_num_seqs}
        named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *named, "--enforce-eager"]
        environment = {**os.environ, **ON_CPU, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        try:
            yield Server(process, port, log)
        finally:
            process.kill()
            process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Server, Server]]:
    with server(tmp_path / "narrow.log", 1) as narrow, server(tmp_path / "wide.log", 16) as wide:
        await until(lambda: narrow.report() is not None and wide.report() is not None, deadline_s=START_S)
        yield narrow, wide


async def test_a_pool_goes_by_what_engines_report_and_survives_the_death_of_one(
    servers: tuple[Server, Server],
) -> None:
    narrow, wide = servers
    async with starting(
        VLLMModel,
        base_url=[f"{one.root}/v1" for one in servers],
        api_key="none",
        model="tiny",
        return_token_id_information=True,
        uses_reasoning_parser=False,
    ) as start:
        worker = await start()

        async def roll_out(number: int, num_calls: int) -> None:
            for _ in range(num_calls):
                items = [{"role": "user", "content": f"What is {number} + 4?"}]
                params = {"input": items, "max_output_tokens": 64, "metadata": {"extra_body": '{"ignore_eos": true}'}}
                name = f"run/{number}/0"
                reply = await worker.respond(gymq.ModelRequest(params, f"{name}/1", name, START_S))
                assert len(reply["output"][-1]["generation_token_ids"]) == 64

        await until(lambda: (load := worker.load()) is not None and load.kv_cache_tokens == 2 * CACHE_TOKENS)
        await asyncio.gather(*(roll_out(number, 3) for number in range(60)))
        done = [_num_done(one) for one in servers]
        assert sum(done) >= 180
        assert done[1] > done[0] > 0  # the wide one works on more at a time
        rest = asyncio.gather(*(roll_out(number, 2) for number in range(40)))
        await until(lambda: _is_busy(wide))
        wide.process.kill()
        await rest
        assert _num_done(narrow) > done[0]


def _is_busy(server: Server) -> bool:
    report = server.report()
    return report is not None and report.running > 0


def _num_done(server: Server) -> int:
    with urllib.request.urlopen(f"{server.root}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:request_success_total{")))
