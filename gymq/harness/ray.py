"""Nodes of a Ray cluster as places for an agent's program. Ray finds the node, a process there runs the programs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from gymq.harness.places import GRACE_S, Ended, Place, Process
from gymq.outcomes import ComponentFailed
from gymq.ray_cluster import NoCluster, join
from gymq.sandbox.interface import MIB

START_S = 600.0  # nodes may be full, or one has to be started
PATIENCE_S = 60.0  # for Ray, beside the time of a program


class Ray(Place):
    """A `Process` on some node, in an actor of its own. gymq has to be installed there; no isolation either.

    If this process dies, or the node is cut off from it, the programs end and their folder is removed.

    Args:
        address: of the cluster, as `ray.init` takes it.
        num_cpus: cores that the place takes; without free ones it waits.
        memory_mib: taken like cores, and the limit of a program with all that it starts.
        resources: others that the node must have, as Ray names them.
        env: variables of its programs.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        num_cpus: float = 1.0,
        memory_mib: int | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._address = address
        self._num_cpus = num_cpus
        self._memory_mib = memory_mib
        self._resources = dict(resources or {})
        self._env = dict(env or {})
        self._ray: Any = None
        self._actor: Any = None
        self._num_programs = 0

    async def gateway_host(self) -> str:
        await self._join()
        return str(self._ray.util.get_node_ip_address())

    async def __aenter__(self) -> Self:
        await self._join()
        needs: dict[str, Any] = {"num_cpus": self._num_cpus, "resources": self._resources}
        if self._memory_mib is not None:
            needs["memory"] = self._memory_mib * MIB
        lasting = {"max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor = self._ray.remote(**needs, **lasting)(_Node).remote(self._env, self._memory_mib)
        wanted = f"{self._num_cpus:g} free CPUs" + (f" and {self._memory_mib} MiB" if self._memory_mib else "")
        try:
            await self._answer(self._actor.open.remote(), START_S, f"Ray has no node with {wanted}")
        except BaseException:
            self._ray.kill(self._actor)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.shield(self._leave())

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        self._num_programs += 1
        number = self._num_programs
        ending = self._actor.run.remote(number, script, wall_s, dict(env or {}), stdin)
        try:
            limit_s = wall_s + GRACE_S + PATIENCE_S
            ended = await self._answer(ending, limit_s, "Ray did not tell how a program ended")
        except BaseException:
            await asyncio.shield(self._end(number))
            raise
        if isinstance(ended, str):
            raise ComponentFailed(ended)
        assert isinstance(ended, Ended)
        return ended

    async def _join(self) -> None:
        try:
            self._ray = await asyncio.to_thread(join, self._address)
        except NoCluster as error:
            raise ComponentFailed(str(error)) from None

    async def _end(self, number: int) -> None:
        with contextlib.suppress(ComponentFailed):  # the actor is gone; then the program is too
            await self._answer(self._actor.end.remote(number), GRACE_S + PATIENCE_S, "Ray did not end a program")

    async def _leave(self) -> None:
        with contextlib.suppress(ComponentFailed):
            await self._answer(self._actor.close.remote(), GRACE_S + PATIENCE_S, "Ray did not end a place")
        self._ray.kill(self._actor)

    async def _answer(self, reference: Any, limit_s: float, too_late: str) -> Any:
        """
        Raises:
            ComponentFailed: there is none within the limit, or Ray lost the actor.
        """
        try:
            async with asyncio.timeout(limit_s):
                return await reference
        except TimeoutError:
            raise ComponentFailed(f"{too_late} within {limit_s:g} s") from None
        except self._ray.exceptions.RayError as error:
            raise ComponentFailed(f"Ray lost the actor of a place: {type(error).__name__}") from None


class _Node:
    """Runs as an actor, on the event loop that Ray gives to actors with coroutines."""

    def __init__(self, env: dict[str, str], memory_mib: int | None) -> None:
        self._place = Process(env, memory_mib=memory_mib)
        self._program: asyncio.Task[Ended] | None = None
        self._num_ended = 0

    async def open(self) -> None:
        await self._place.__aenter__()

    async def run(self, number: int, script: str, wall_s: float, env: dict[str, str], stdin: bytes) -> Ended | str:
        """How a program ended, or why it could not be run."""
        if number <= self._num_ended:
            return "the program was ended"
        self._program = asyncio.create_task(self._place.run(script, wall_s=wall_s, env=env, stdin=stdin))
        try:
            return await self._program
        except asyncio.CancelledError:
            return "the program was ended"
        except ComponentFailed as error:
            return error.message

    async def end(self, number: int) -> None:
        """End the programs up to this one, also if it is not there yet: calls may overtake each other."""
        self._num_ended = number
        if self._program is not None:
            self._program.cancel()
            await asyncio.wait([self._program])

    async def close(self) -> None:
        await self.end(sys.maxsize)
        await self._place.__aexit__(None, None, None)
