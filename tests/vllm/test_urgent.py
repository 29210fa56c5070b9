"""Urgent calls in an engine that has more to do than it can at a time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

from gymq.authoring import CurrentCall, Precedence, current_call
from gymq.protocol.messages import Priority
from tests.support.waiting import until

from .tiny_policy import QUESTION, asked, engine_of

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

ENDLESS: dict[str, Any] = {"max_output_tokens": 400, "metadata": {"extra_body": json.dumps({"ignore_eos": True})}}


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "application"])
async def test_an_urgent_call_has_the_next_place_of_a_full_engine(
    model: LocalVLLMModel, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    engine = engine_of(model)
    if not is_direct:
        monkeypatch.setattr(engine, "_direct", None)
    ended: list[Priority] = []

    async def call(priority: Priority, **params: Any) -> None:
        current_call.set(CurrentCall("test/0/0", float("inf"), Precedence(priority)))
        await model.respond(asked(QUESTION, **params))
        ended.append(priority)

    async def until_load(running: int, waiting: int) -> None:
        await until(lambda: (load := model.load()) is not None and (load.running, load.waiting) == (running, waiting))

    calls = [asyncio.create_task(call(Priority.BACKGROUND, **ENDLESS)) for _ in range(engine.max_num_seqs)]
    try:
        await until_load(engine.max_num_seqs, 0)
        for waiting, priority in enumerate((Priority.NORMAL, Priority.URGENT), start=1):
            calls.append(asyncio.create_task(call(priority, max_output_tokens=4)))
            await until_load(engine.max_num_seqs, waiting)
        assert not ended  # all places were taken until now
        calls[0].cancel()
        await asyncio.gather(*calls[-2:])
    finally:
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert [priority for priority in ended if priority is not Priority.BACKGROUND] == [Priority.URGENT, Priority.NORMAL]
