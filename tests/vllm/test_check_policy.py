"""`gymq check-policy` on real engines: in the worker's process, and `vllm serve` with either kind of log probs."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq
from gymq.protocol.messages import PromptRead
from gymq.protocol.packing import note_sampling
from tests.support.ports import free_port
from tests.support.waiting import until_answer

from .tiny_policy import ON_CPU, POLICY

check_policy = pytest.importorskip("gymq.ext.policy_check.findings").check_policy
PolicyReference = pytest.importorskip("gymq.ext.policy_check.reference").PolicyReference
PromptLogProbs = pytest.importorskip("gymq.ext.policy_check.vllm_prompts").PromptLogProbs

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

SERVE = (
    *("-m", "vllm.entrypoints.launchers.api_server.entry"),  # the command `vllm` is broken in the build for CPUs
    *("--model", str(POLICY), "--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "512"),
    *("--kv-cache-memory-bytes", str(64 << 20), "--max-num-seqs", "64", "--max-logprobs", "-1", "--enforce-eager"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--distributed-executor-backend", "uni"),
)


@pytest.mark.parametrize("has_reference", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_the_engine_in_the_worker_is_exact(model: LocalVLLMModel, has_reference: bool) -> None:
    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        request = gymq.ModelRequest(params, f"check/{uuid.uuid4()}", "check/0/0", 120.0)
        response = await model.respond(request)
        note_sampling(response, request.sampling)
        return response

    async def read(prompt: list[int] | dict[str, Any], num_log_probs: int, first: int) -> PromptRead:
        found = PromptRead(**await model.read_prompt(prompt, num_log_probs, 120.0))
        return PromptRead(token_ids=found.token_ids, log_probs=found.log_probs[first:])

    source = PolicyReference(POLICY) if has_reference else PromptLogProbs(read)
    findings = await check_policy(ask, source, tolerance=1e-4)
    not_exact = [] if has_reference else [("repetition_penalty 1.2", "not comparable")]
    assert [(finding.check, finding.verdict) for finding in findings if finding.verdict != "ok"] == not_exact
    assert len([finding for finding in findings if finding.largest is not None]) == 13 - len(not_exact)


@asynccontextmanager
async def served(folder: Path, *args: str) -> AsyncIterator[str]:
    """The URL of `vllm serve` with the tiny policy."""
    port = free_port("127.0.0.1")
    with (folder / "serve.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, *SERVE, *args, "--host", "127.0.0.1", "--port", str(port)),
            stdout=log,
            stderr=log,
            env={**os.environ, **ON_CPU, "HF_HUB_OFFLINE": "1"},
        )

    async def is_healthy() -> bool:
        assert server.returncode is None, (folder / "serve.log").read_text()[-2000:]
        try:
            async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/health") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await until_answer(is_healthy, deadline_s=600.0)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("mode", ["processed_logprobs", "raw_logprobs"])
async def test_vllm_serve_is_exact_or_its_flag_is_named(tmp_path: Path, mode: str) -> None:
    async with served(tmp_path, "--logprobs-mode", mode) as url:
        command = (sys.executable, "-m", "gymq", "check-policy", "--model-url", url, "--model", "tiny")
        env = {**os.environ, "COLUMNS": "200"}
        async with asyncio.timeout(800):
            ran = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env, stdout=PIPE, stderr=STDOUT)
            printed = (await ran.communicate())[0].decode()
    lines = {line[:24].strip(): line for line in printed.splitlines()}
    assert "ok" in lines["temperature 1"], printed
    assert "not comparable" in lines["repetition_penalty 1.2"], printed
    if mode == "processed_logprobs":
        assert ran.returncode == 0, printed
    else:
        assert ran.returncode == 1
        assert "--logprobs-mode processed_logprobs" in lines["temperature 0.3"]
