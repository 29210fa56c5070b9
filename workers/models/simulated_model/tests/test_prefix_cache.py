"""The simulated prefix cache finds what an engine's would find."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest
from gymq.workers.models.simulated_model.prefix_cache import BLOCK_TOKENS, PrefixCache
from gymq.workers.models.simulated_model.worker import SimulatedModel

import gymq
from gymq.testing import prompt
from tests.support.waiting import until


def ids(*blocks: int, more: int = 1) -> array[int]:
    """Blocks of one token each, sixteen times, and some more tokens."""
    return array("i", [block for block in blocks for _ in range(BLOCK_TOKENS)] + [99] * more)


def cache_with(*texts: array[int], num_blocks: int = 100) -> PrefixCache:
    cache = PrefixCache(num_blocks)
    for text in texts:
        cache.keep(text)
    return cache


@pytest.mark.parametrize(
    ("known", "asked", "num_blocks"),
    [
        ([], ids(1, 2), 0),
        ([ids(1, 2)], ids(1, 2), 2),
        ([ids(1, 2)], ids(1, 2, 3), 2),
        ([ids(1, 2, 3)], ids(1, 2), 2),
        ([ids(1, 2)], ids(1, 3), 1),
        ([ids(1, 2)], ids(2), 0),  # the same block behind another beginning
        ([ids(1, 2), ids(1, 3)], ids(1, 3), 2),
        ([ids(1, more=15)], ids(1, more=15), 1),  # the rest fills no block
        ([ids(1, 2, more=0)], ids(1, 2, more=0), 1),  # one token has to be computed
    ],
)
def test_the_longest_known_beginning_is_found(known: list[array[int]], asked: array[int], num_blocks: int) -> None:
    assert cache_with(*known).num_cached(asked) == num_blocks * BLOCK_TOKENS


def test_the_least_recently_used_goes_first() -> None:
    cache = cache_with(ids(1), ids(2), num_blocks=2)
    cache.num_cached(ids(1))
    cache.keep(ids(3))
    assert [cache.num_cached(ids(block)) for block in (1, 2, 3)] == [16, 0, 16]


def test_of_a_text_that_does_not_fit_the_beginning_stays() -> None:
    cache = cache_with(ids(1, 2, 3, 4), num_blocks=3)
    assert (len(cache), cache.num_cached(ids(1, 2, 3, 4))) == (3, 48)


async def test_a_turn_finds_all_tokens_of_the_turn_before() -> None:
    worker = SimulatedModel({"token_ids": True, "output_tokens": 40, "cache_blocks": 1000})
    await worker.start()
    params: dict[str, Any] = dict(prompt("Tell me something about Switzerland.")["responses_create_params"])
    params["input"] = (
        [{"role": "user", "content": params["input"]}] if isinstance(params["input"], str) else params["input"]
    )
    before = 0
    for _ in range(4):
        reply = await worker.respond(gymq.ModelRequest(params, "s", "r", timeout_s=5.0))
        usage = reply["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] == before // BLOCK_TOKENS * BLOCK_TOKENS
        before = usage["total_tokens"]
        again = {"role": "user", "content": "And what else is there to be said of it?"}
        params = {**params, "input": [*params["input"], *reply["output"], again]}


async def test_without_a_cache_nothing_is_cached() -> None:
    worker = SimulatedModel({"token_ids": True})
    await worker.start()
    params = {"input": [{"role": "user", "content": "x" * 1000}]}
    for _ in range(2):
        reply = await worker.respond(gymq.ModelRequest(params, "s", "r", timeout_s=5.0))
        assert reply["usage"]["input_tokens_details"]["cached_tokens"] == 0


async def test_prompts_are_computed_one_after_another_and_counted_in_the_load() -> None:
    worker = SimulatedModel({"cache_blocks": 100, "prefill_tokens_per_s": 1.0})
    await worker.start()
    assert worker.load() == gymq.ModelLoad(0, 0, 0.0, kv_cache_tokens=1600)
    params = {"input": [{"role": "user", "content": "x" * 1000}]}
    calls = [
        asyncio.create_task(worker.respond(gymq.ModelRequest(params, f"s{number}", "r", timeout_s=60.0)))
        for number in range(3)
    ]
    await until(lambda: worker.load() != gymq.ModelLoad(0, 0, 0.0, kv_cache_tokens=1600))
    load = worker.load()
    assert load is not None
    assert (load.running, load.waiting, load.kv_cache_use > 0.1) == (1, 2, True)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert worker.load() == gymq.ModelLoad(0, 0, 0.0, kv_cache_tokens=1600)
