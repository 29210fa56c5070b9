"""Worker processes placed on the nodes of a Ray cluster. Ray finds the node, and another one when that is lost.

An actor on the node keeps the process alive, as `gymq up` does on its own machine. Tasks, calls and outcomes stay on
NATS: a call never passes through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from gymq.cluster.child import Child
from gymq.cluster.process_spec import ProcessSpec
from gymq.errors import UsageError
from gymq.ext.ray.cluster import join

PATIENCE_S = 10.0  # for the answer of an actor that lives


class RayNodes:
    """The nodes of a Ray cluster, which have gymq installed and reach the NATS server.

    Args:
        address: address of the cluster, as `ray.init` takes it.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at that address.
    """

    def __init__(self, address: str) -> None:
        self.ray = join(address)

    def child(self, name: str, spec: ProcessSpec) -> RayChild:
        """Return a worker process somewhere in the cluster; it is not started yet."""
        return RayChild(self.ray, name, spec)


class RayChild:
    """One worker process on some node."""

    def __init__(self, ray: Any, name: str, spec: ProcessSpec) -> None:
        self.name = name
        self.spec = spec
        self.serves = False
        self._ray = ray
        self._actor: Any = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Place the process on a node and wait until it serves.

        Raises:
            UsageError: it reports why it cannot start, or its node was lost.
        """
        actor_class = self._ray.remote(num_cpus=1, max_restarts=-1, max_concurrency=4, scheduling_strategy="SPREAD")(
            _WorkerActor
        )
        # As JSON, so that a node may run another Python. Ray keeps it: who may read there, reads passwords.
        self._actor = actor_class.remote(self.name, msgspec.json.encode(self.spec))
        try:
            problem = await self._actor.problem.remote()
        except self._ray.exceptions.RayError as error:
            problem = f"Ray lost it while it started: {type(error).__name__}"
        if problem is not None:
            raise UsageError(f"{self.name}: {problem}")
        self.serves = True
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self.serves = await self._actor.serves.remote()
            except (TimeoutError, self._ray.exceptions.RayError):
                self.serves = False  # Ray starts it again, as soon as a node has room

    async def stop(self) -> None:
        """Let it drain, then take it from its node."""
        if self._watching is not None:
            self._watching.cancel()
        self.serves = False
        if self._actor is None:
            return
        with contextlib.suppress(TimeoutError, self._ray.exceptions.RayError):
            async with asyncio.timeout(self.spec.drain_s + PATIENCE_S):
                await self._actor.stop.remote()
        self._ray.kill(self._actor)


class _WorkerActor:
    """Ray actor that keeps one worker process alive, from a thread with an event loop of its own.

    Ray recreates the actor after a loss, and then calls only this constructor: so it starts the process.
    """

    def __init__(self, name: str, spec: bytes) -> None:
        decoded = msgspec.json.decode(spec, type=ProcessSpec)
        self._child = Child(name, decoded, None, Path(".gymq") / "environments")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._started = self._start()

    def _start(self) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self._child.start(), self._loop)

    def problem(self) -> str | None:
        """Return why it cannot be started; None once it serves."""
        try:
            self._started.result()
        except UsageError as error:
            return str(error).removeprefix(f"{self._child.name}: ")
        return None

    def serves(self) -> bool:
        """Return whether the process serves at this moment.

        A start that failed is retried, since it may succeed on another node.
        """
        if self._started.done() and self._started.exception() is not None:
            self._started = self._start()
        return self._child.serves

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._child.stop(), self._loop).result()
