"""Log probs are those of the distribution that was sampled, and what was sampled with is noted."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import pytest
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

from .tiny_policy import POLICY, asked

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

QUESTION = "Say a few words."


@functools.cache
def reference() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32).eval()


def recomputed(prompt: list[int], generated: list[int], *, temperature: float, top_k: int, top_p: float) -> list[float]:
    """The log probs of the sampled tokens after temperature, top_k and top_p."""
    import torch

    with torch.no_grad():
        logits = reference()(torch.tensor([[*prompt, *generated]])).logits[0, len(prompt) - 1 : -1] / temperature
    if top_k > 0:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -math.inf)
    ranked, order = logits.softmax(-1).sort(descending=True)
    is_cut = (ranked.cumsum(-1) - ranked >= top_p).gather(-1, order.argsort(-1))
    log_probs = logits.masked_fill(is_cut, -math.inf).log_softmax(-1)
    return log_probs.gather(-1, torch.tensor(generated)[:, None])[:, 0].tolist()


@pytest.mark.parametrize(
    ("params", "extra"),
    [
        ({}, {}),
        ({"temperature": 1.0}, {}),
        ({"temperature": 0.7}, {}),
        ({"temperature": 1.5}, {}),
        ({"temperature": 0.7, "top_p": 0.8}, {}),
        ({"temperature": 1.3}, {"top_k": 5}),
    ],
)
async def test_log_probs_are_of_the_sampled_distribution(
    model: LocalVLLMModel, params: dict[str, Any], extra: dict[str, Any]
) -> None:
    given: dict[str, Any] = {**params, "metadata": {"extra_body": json.dumps(extra)}}
    for _ in range(8):
        request = asked(QUESTION, max_output_tokens=24, **given)
        item = (await model.respond(request))["output"][-1]
        expected = recomputed(
            list(item["prompt_token_ids"]),
            list(item["generation_token_ids"]),
            temperature=params.get("temperature", 1.0),
            top_k=extra.get("top_k", 0),
            top_p=params.get("top_p", 1.0),
        )
        assert list(item["generation_log_probs"]) == pytest.approx(expected, abs=1e-4)
        sampling = {"temperature": 1.0, "log_probs": "processed", "max_tokens": 24}
        assert request.sampling == sampling | params | extra
