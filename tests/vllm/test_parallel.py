"""Engines of several processes: tensors or requests divided among them, with the answers and weights of one."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import psutil
import pytest
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq

from .tiny_policy import ON_CPU, QUESTION, WEIGHTS_FILE, asked, certainty, mute, options

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

VOCABULARY = 342
NUM_REQUESTS = 8

# vLLM 0.32 makes room for what the second stage receives when it warms up, which on a CPU it does only to compile.
WARMED_UP = {"enforce_eager": False, "compilation_config": {"mode": 1, "backend": "eager"}}


@pytest.mark.nightly
@pytest.mark.parametrize("divided", ["tensor", "data", "pipeline"])
async def test_an_engine_of_two_processes_is_like_one(
    model: LocalVLLMModel, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, divided: str
) -> None:
    for name, value in ON_CPU.items():
        monkeypatch.setenv(name, value)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    serve: dict[str, Any] = {f"{divided}_parallel_size": 2, "distributed_executor_backend": "mp"}
    if divided == "pipeline":
        serve |= WARMED_UP
    parallel = LocalVLLMModel(options(vllm_serve_kwargs=serve), name="policy_model")
    await parallel.start()
    try:
        ask = asked(QUESTION, temperature=0.0, max_output_tokens=8)
        one = (await model.respond(ask))["output"][-1]
        for reply in await asyncio.gather(*(parallel.respond(ask) for _ in range(NUM_REQUESTS))):
            item = reply["output"][-1]
            assert list(item["generation_token_ids"]) == list(one["generation_token_ids"])
            assert list(item["generation_log_probs"]) == pytest.approx(list(one["generation_log_probs"]), abs=1e-4)
        mute(checkpoint)
        await parallel.load_weights(gymq.WeightsUpdate("1", weights=(checkpoint / WEIGHTS_FILE).read_bytes()))
        for _ in range(NUM_REQUESTS):  # whichever process answers
            assert await certainty(parallel) == pytest.approx(-math.log(VOCABULARY), abs=1e-3)
    finally:
        await parallel.stop()
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    psutil.wait_procs([psutil.Process(pid) for pid in left if psutil.pid_exists(pid)], timeout=30)
    assert not {child.pid for child in psutil.Process().children(recursive=True)} - before
