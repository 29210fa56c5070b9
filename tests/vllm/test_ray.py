"""Engines that Ray places: the same answers, and a lost actor is replaced with its requests and its weights."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import pytest_asyncio
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from gymq.workers.models.local_vllm_model.worker import LocalVLLMModel

import gymq

from .tiny_policy import POLICY, WEIGHTS_FILE, asked, certainty, mute, options

pytest.importorskip("ray", reason="Ray is not installed here; `make test-in NAME=vllm` installs it")
pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

INIT = {"num_cpus": 2, "object_store_memory": 100 << 20}


def on_ray(**changed: Any) -> LocalVLLMModel:
    ray = {"address": "local", "gpus_per_rank": 0, "init": INIT, "placement_timeout_s": 5.0} | changed
    return LocalVLLMModel(options(ray=ray), name="policy_model")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def placed() -> AsyncIterator[LocalVLLMModel]:
    """One engine in an actor, on a cluster of this process."""
    # Short, because Ray puts sockets there whose paths must not be long.
    with tempfile.TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        worker = on_ray()
        await worker.start()
        yield worker
        await worker.stop()


async def test_an_engine_on_ray_answers_with_tokens(placed: LocalVLLMModel) -> None:
    reply = await placed.respond(asked("What is 3 + 4?", temperature=0.0))
    assert reply["status"] == "completed"
    assert len(reply["output"][-1]["generation_log_probs"]) == reply["usage"]["output_tokens"]


async def test_an_engine_that_fits_nowhere_is_told_with_what_it_needs(placed: LocalVLLMModel) -> None:
    worker = on_ray(gpus_per_rank=8, placement_timeout_s=0.5)
    with pytest.raises(RuntimeError, match=r"no room for an engine within 0\.5 s: it needs .*GPU.* has 2 CPU in all"):
        await worker.start()


@pytest.mark.nightly
async def test_a_lost_actor_comes_back_with_its_requests_and_its_weights(
    placed: LocalVLLMModel, checkpoint: Path
) -> None:
    mute(checkpoint)
    await placed.load_weights(gymq.WeightsUpdate("1", weights=(checkpoint / WEIGHTS_FILE).read_bytes()))
    extra = {"extra_body": json.dumps({"ignore_eos": True})}
    long = asked("What is 3 + 4?", timeout_s=250.0, max_output_tokens=400, metadata=extra)
    tasks = [asyncio.create_task(placed.respond(long)) for _ in range(4)]
    await asyncio.sleep(0.3)
    actors = [one for one in psutil.Process().children(recursive=True) if "EngineActor" in " ".join(one.cmdline())]
    assert actors
    for actor in actors:
        os.kill(actor.pid, signal.SIGKILL)
    replies = await asyncio.gather(*tasks)
    assert [reply["usage"]["output_tokens"] for reply in replies] == [400] * 4
    assert await certainty(placed) < -5.0  # the muted weights, not those of the start


@pytest.mark.nightly
async def test_weights_that_do_not_fit_are_refused_by_the_actor(placed: LocalVLLMModel) -> None:
    with pytest.raises(ValueError, match="a folder with such files"):
        await placed.load_weights(gymq.WeightsUpdate("2", path=str(POLICY / "nowhere")))


class _Weights:
    """An engine that answers with the name of its weights."""

    is_broken = False

    def __init__(self, *, takes: set[str]) -> None:
        self.name, self._takes = "first", takes

    async def post(self, *_: Any, **__: Any) -> tuple[int, Any]:
        return 200, self.name

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        if update.policy_version not in self._takes:
            raise FileNotFoundError(update.path)
        self.name = update.policy_version

    def load(self) -> gymq.ModelLoad:
        return gymq.ModelLoad(0, 0)


class _Rank:
    """What Ray's handle of an actor is to its caller, in this process."""

    def __init__(self, *, takes: set[str]) -> None:
        self._takes = takes
        self.restart()

    def restart(self) -> None:
        from gymq.workers.models.local_vllm_model.ray_engine import EngineActor  # imports Ray

        self._actor = EngineActor([])
        self._actor._starting = asyncio.create_task(self._start())

    async def _start(self) -> _Weights:
        return _Weights(takes=self._takes)

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *given: getattr(self._actor, method)(*given))


class _Stored:
    """A reference to an object in Ray's store."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self._value


async def test_ranks_have_the_same_weights_after_one_has_refused_some(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymq.workers.models.local_vllm_model.ray_engine import RayEngine  # imports Ray

    monkeypatch.setattr("ray.put", _Stored)
    monkeypatch.setattr("ray.kill", lambda rank, no_restart: rank.restart())
    parallel = options(ray={}, vllm_serve_kwargs={"data_parallel_size": 2})
    engine = RayEngine([], {}, LocalVLLMOptions(**parallel))
    engine._actors = [_Rank(takes={"1", "2"}), _Rank(takes={"2"})]

    async def answers() -> set[Any]:
        return {(await engine.post("/", {}, str(session)))[1] for session in range(16)}

    with pytest.raises(FileNotFoundError):
        await engine.load_weights(gymq.WeightsUpdate("1", path="/of/one/node"))
    assert await answers() == {"first"}
    await engine.load_weights(gymq.WeightsUpdate("2", path="/of/all/nodes"))
    assert await answers() == {"2"}
    with pytest.raises(FileNotFoundError):
        await engine.load_weights(gymq.WeightsUpdate("1", path="/of/one/node"))
    assert await answers() == {"2"}
