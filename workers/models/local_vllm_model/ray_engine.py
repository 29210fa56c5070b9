"""Engines that run as Ray actors, one for each rank of data parallelism. Imports Ray.

Requests come to this worker over NATS and go on to an actor. An actor that is lost is started again by Ray, elsewhere
if need be, and Ray gives it the requests that the lost one had not answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray
from gymq.workers.models.local_vllm_model import placement
from gymq.workers.models.local_vllm_model.options import LocalVLLMOptions
from ray.exceptions import RayActorError
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gymq import ModelLoad, WeightsUpdate

T = TypeVar("T")

_CALLS_AT_A_TIME = 10_000  # of one actor; the engine has its own limit
_LOOK_S = 0.5  # at the engine's health


class EngineActor:
    """One engine in a process of Ray's."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._starting: asyncio.Task[Any] | None = None
        self._loading = asyncio.Lock()
        self._epoch = 0

    async def ready(self) -> int:
        """Start the engine if it is not; how many requests it runs at a time."""
        return int((await self._engine()).max_num_seqs)

    async def post(
        self, path: str, body: dict[str, Any], num_known: int, epoch: int, update: list[Any]
    ) -> tuple[int, bytes | dict[str, Any], ModelLoad]:
        """Answer a request with the weights of an epoch, and report the load.

        Args:
            update: the reference to the weights of that epoch; empty in the first.
        """
        await self.load_weights(epoch, update)
        engine = await self._engine()
        status, answer = await engine.post(path, body, num_known=num_known)
        if engine.is_broken:
            os._exit(1)  # Ray starts another actor, which gets this request again
        return status, answer, engine.load()

    async def load_weights(self, epoch: int, update: list[Any]) -> None:
        """Load the weights of an epoch, unless they are loaded: an actor that was started again has the first ones."""
        if epoch <= self._epoch:
            return
        async with self._loading:
            if epoch > self._epoch:
                engine = await self._engine()
                await engine.load_weights(await update[0])
                self._epoch = epoch

    async def _engine(self) -> Any:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Any:
        from gymq.workers.models.local_vllm_model.engine import Engine  # imports vLLM, which only actors have to

        engine = Engine(self._arguments)
        await engine.start()
        self._watching = asyncio.create_task(self._watch(engine))
        return engine

    async def _watch(self, engine: Any) -> None:
        while not engine.is_broken:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        os._exit(1)


class RayEngine:
    """The actors of one worker, asked like one engine."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], options: LocalVLLMOptions) -> None:
        self._arguments = arguments
        self._environment = dict(environment)
        self._options = options
        self._actors: list[Any] = []
        self._groups: list[Any] = []
        self._in_flight = 0
        self._cache_use = 0.0
        self._cache_tokens = 0  # as an actor stated, times the number of them
        self._epoch = 0
        self._newest_epoch = 0  # of an update that may have been refused
        self._update: list[Any] = []
        self._max_num_seqs = 1
        self._is_broken = False
        self._joined = False
        # Ray binds its processes to the thread that joined it, and takes over signals in the main thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ray")

    async def start(self) -> None:
        """
        Raises:
            NoPlace: the cluster has no room.
        """
        options = self._options.ray
        assert options is not None
        self._joined = await self._in_thread(lambda: placement.join(options))
        for _ in range(self._options.size("data_parallel_size")):
            self._groups.append(await self._in_thread(lambda: placement.reserve(self._options)))
        self._actors = [self._make(group) for group in self._groups]
        limits = await asyncio.gather(*(_answer(actor.ready.remote()) for actor in self._actors))
        self._max_num_seqs = sum(limits)

    def _make(self, group: Any) -> Any:
        runtime: dict[str, Any] = {"env_vars": self._environment}
        if self._options.ray_worker_py_executable is not None:
            runtime["py_executable"] = self._options.ray_worker_py_executable
        assert self._options.ray is not None
        # A bundle's first place is the front end's; vLLM takes the GPUs of the others.
        place = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
        actor = ray.remote(EngineActor).options(
            num_cpus=self._options.ray.cpus_per_rank,
            resources=self._options.ray.resources,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_CALLS_AT_A_TIME,
            scheduling_strategy=place,
            runtime_env=runtime,
        )
        return actor.remote(self._arguments)

    async def stop(self) -> None:
        await self._in_thread(self._leave)
        self._thread.shutdown(wait=False)

    def _leave(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        for group in self._groups:
            remove_placement_group(group)
        if self._joined:
            ray.shutdown()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    @property
    def is_broken(self) -> bool:
        """Return whether Ray has declared an actor dead."""
        return self._is_broken

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at the same time, in all ranks."""
        return self._max_num_seqs

    def load(self) -> ModelLoad:
        """Return the requests of this worker, and the use of the cache as last reported by an actor."""
        running = min(self._in_flight, self._max_num_seqs)
        return ModelLoad(running, self._in_flight - running, self._cache_use, self._cache_tokens)

    async def post(
        self, path: str, body: Mapping[str, Any], session: str, num_known: int = 0
    ) -> tuple[int, bytes | dict[str, Any]]:
        """Return the answer of the rank that a session belongs to; see `Engine.post`."""
        home = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big")
        actor = self._actors[home % len(self._actors)]
        self._in_flight += 1
        try:
            request = actor.post.remote(path, dict(body), num_known, self._epoch, self._update)
            status, answer, load = await self._watched(_answer(request))
        finally:
            self._in_flight -= 1
        self._cache_use = load.kv_cache_use
        self._cache_tokens = load.kv_cache_tokens * len(self._actors)
        return status, answer

    async def load_weights(self, update: WeightsUpdate) -> None:
        """Give all ranks new weights, or none if one refuses them; see `Engine.load_weights`."""
        reference = [await self._in_thread(lambda: ray.put(update))]
        self._newest_epoch += 1
        epoch = self._newest_epoch
        results = await asyncio.gather(
            *(self._watched(_answer(actor.load_weights.remote(epoch, reference))) for actor in self._actors),
            return_exceptions=True,
        )
        refusal = next((result for result in results if isinstance(result, BaseException)), None)
        if refusal is not None:
            for actor, result in zip(self._actors, results, strict=True):
                if not isinstance(result, BaseException):
                    ray.kill(actor, no_restart=False)  # it comes back with the weights of the others
            raise refusal
        self._epoch, self._update = epoch, reference

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except RayActorError:
            self._is_broken = True
            raise


async def _answer(reference: Any) -> Any:
    """Return what a call of an actor gives. Cancelling it cancels the call."""
    try:
        return await reference
    except asyncio.CancelledError:
        ray.cancel(reference)
        raise
