"""New weights in a running engine: they answer, or the old ones do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.local_vllm_model.backend import AskedHere
from gymq.workers.models.local_vllm_model.checkpoint import UnusableWeights
from gymq.workers.models.local_vllm_model.serve_args import sampler
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq
from gymq.defaults import WeightsMode
from tests.support.waiting import until

from .tiny_policy import ADD, POLICY, QUESTION, WEIGHTS_FILE, asked, certainty, engine_of, mute

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]


async def restore(model: LocalVLLMModel) -> None:
    await model.load_weights(gymq.WeightsUpdate("0", path=str(POLICY)))


@pytest.mark.parametrize("name", ["", WEIGHTS_FILE])
async def test_weights_of_a_folder_or_a_file_answer(model: LocalVLLMModel, checkpoint: Path, name: str) -> None:
    before = await certainty(model)
    mute(checkpoint)
    await model.load_weights(gymq.WeightsUpdate("1", path=str(checkpoint / name)))
    after = await certainty(model)
    await restore(model)
    assert after < -5.0 < before
    assert await certainty(model) == pytest.approx(before, abs=1e-4)


async def test_weights_that_come_as_bytes_answer(model: LocalVLLMModel, checkpoint: Path) -> None:
    mute(checkpoint)
    await model.load_weights(gymq.WeightsUpdate("1", weights=(checkpoint / WEIGHTS_FILE).read_bytes()))
    after = await certainty(model)
    await restore(model)
    assert after < -5.0 < await certainty(model)


@pytest.mark.parametrize(("mode", "asks_directly"), [("keep", True), ("wait", True), ("abort", True), ("keep", False)])
async def test_requests_that_run_are_answered_in_full_and_tell_which_weights_sampled_each_token(
    model: LocalVLLMModel, mode: WeightsMode, asks_directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not asks_directly:  # vLLM's application answers
        monkeypatch.setattr(engine_of(model), "_direct", None)
    await restore(model)
    extra = {"extra_body": json.dumps({"ignore_eos": True})}
    tasks = [
        asyncio.create_task(model.respond(asked(QUESTION, max_output_tokens=300, metadata=extra))) for _ in range(8)
    ]
    await until(lambda: (load := model.load()) is not None and load.running >= 8)
    await model.load_weights(gymq.WeightsUpdate("1", path=str(POLICY), mode=mode))
    replies = await asyncio.gather(*tasks)
    assert [reply["usage"]["output_tokens"] for reply in replies] == [300] * 8
    expected = {"keep": ["0", "1"], "wait": ["0"], "abort": ["1"]}[mode]
    for reply in replies:
        stretches = reply["output"][-1]["generation_policy_versions"]
        assert [version for version, _ in stretches] == expected
        assert sum(count for _, count in stretches) == 300


CHAT = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0.0}
FUNCTION = {"name": "add", "parameters": ADD["parameters"]}


@pytest.mark.parametrize("asks_directly", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {**CHAT, "tools": [{"type": "function", "function": FUNCTION}]}),
        ("/completions", {"prompt": QUESTION}),
        ("/responses", {"input": QUESTION}),
    ],
)
async def test_what_new_weights_have_ended_is_asked_again(
    model: LocalVLLMModel, path: str, body: dict[str, Any], asks_directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(model)
    if not asks_directly:
        monkeypatch.setattr(engine, "_direct", None)
    llm: Any = type(engine._llm).__base__
    generate, num_generated = llm.generate, 0

    async def first_is_ended(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        nonlocal num_generated
        num_generated += 1
        async for output in generate(*arguments, **named):
            if num_generated == 1 and output.finished:
                output.outputs[0].finish_reason = "abort"
            yield output

    monkeypatch.setattr(llm, "generate", first_is_ended)
    here = AskedHere(engine, "policy_model", "", sampler(model.options))
    asked_whole = model._whole(here, asyncio.get_running_loop().time() + 100.0)
    answer = await asked_whole.post(path, {"model": model.options.model, **body})
    assert num_generated == 2
    if "messages" in body:
        (choice,) = answer["choices"]
        assert len(choice["message"]["tool_calls"]) == 1  # which gives the half reply another finish reason


async def test_the_cache_of_the_old_weights_is_not_used(model: LocalVLLMModel, checkpoint: Path) -> None:
    long = asked("x " * 100, max_output_tokens=1)
    await model.respond(long)
    hits = engine_of(model).recorder.prefix_hits
    await model.respond(long)
    assert engine_of(model).recorder.prefix_hits > hits
    await restore(model)
    hits = engine_of(model).recorder.prefix_hits
    await model.respond(long)
    assert engine_of(model).recorder.prefix_hits == hits


async def test_weights_of_another_shape_are_refused_and_the_old_ones_answer(
    model: LocalVLLMModel, checkpoint: Path
) -> None:
    from safetensors import torch as safetensors

    tensors = safetensors.load_file(checkpoint / WEIGHTS_FILE)
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    safetensors.save_file(tensors, checkpoint / WEIGHTS_FILE)
    before = await certainty(model)
    with pytest.raises(UnusableWeights, match=r"the new model\.norm\.weight has the shape \[63\], the model's has"):
        await model.load_weights(gymq.WeightsUpdate("1", path=str(checkpoint)))
    assert await certainty(model) == pytest.approx(before, abs=1e-4)


async def test_a_file_that_breaks_off_is_refused_and_the_old_weights_come_back(
    model: LocalVLLMModel, checkpoint: Path
) -> None:
    before = await certainty(model)
    content = (checkpoint / WEIGHTS_FILE).read_bytes()
    (checkpoint / WEIGHTS_FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(UnusableWeights, match="cannot be loaded"):
        await model.load_weights(gymq.WeightsUpdate("1", path=str(checkpoint)))
    assert await certainty(model) == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (gymq.WeightsUpdate("1", weights=b"nonsense"), "not a file in the safetensors format"),
        (gymq.WeightsUpdate("1", path="/no/such/folder"), "a folder with such files"),
        (gymq.WeightsUpdate("1"), "only announced"),
    ],
)
async def test_what_are_no_weights_is_refused(model: LocalVLLMModel, update: gymq.WeightsUpdate, reason: str) -> None:
    with pytest.raises(UnusableWeights, match=reason):
        await model.load_weights(update)
    assert await certainty(model) > -5.0
