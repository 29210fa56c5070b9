"""Programs on the nodes of a Ray cluster: in the local sandbox of a node, or as trusted programs that share a folder.

What fails on a node is returned from there as an exception, since Ray would wrap it if it were raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Self

from gymq.errors import UsageError
from gymq.ext.ray.cluster import join
from gymq.failures import ComponentFailed, InvalidTask
from gymq.processes.failing import OnFailure, OnFailureAwait
from gymq.sandbox.interface import MIB, Limits, Program, ProgramResult, ProgramSession, Sandbox, SessionEnded, clock_s
from gymq.sandbox.local import LocalSandbox
from gymq.sandbox.options import SandboxOptions
from gymq.sandbox.process import GRACE_S
from gymq.sandbox.workspace import Subprocess, Workspace

START_S = 600.0  # nodes may be full, or one has to be started
PATIENCE_S = 60.0  # for Ray, beside the time of a program


class _Cluster:
    """A Ray cluster: the module `ray`, once this process has joined it.

    Args:
        address: of the cluster, as `ray.init` takes it.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.ray: Any = None

    async def join(self) -> Any:
        """Return the module `ray`, connected to the cluster. May be repeated."""
        try:
            self.ray = await asyncio.to_thread(join, self.address)
        except UsageError as error:
            raise ComponentFailed(str(error)) from None
        return self.ray

    async def answer(self, reference: Any, limit_s: float | None, too_late: str, lost: str) -> Any:
        """Return the result of a task, or of a call to an actor.

        Args:
            limit_s: seconds to wait for it; None: no limit.
            too_late: the message if it does not come in time.
            lost: what Ray may lose, for the message.

        Raises:
            ComponentFailed: there is no result within the limit, or Ray lost it.
            Exception: it failed on the node.
        """
        try:
            async with asyncio.timeout(limit_s):
                outcome = await reference
        except TimeoutError:
            raise ComponentFailed(too_late) from None
        except self.ray.exceptions.RayError as error:
            raise ComponentFailed(f"Ray lost {lost}: {type(error).__name__}") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def _outcome(work: Awaitable[Any]) -> Any:
    """Return the result of work on a node, or the exception with which it failed."""
    try:
        return await work
    except (ComponentFailed, InvalidTask, SessionEnded, TimeoutError) as error:
        return error


class RaySandbox(Sandbox):
    """Each program is a task, each session an actor, spread over the nodes. gymq has to be installed on all of them.

    Args:
        address: of the cluster, as `ray.init` takes it.
        isolation: what has to be active on the nodes; default: the strongest that works there and hides
            the node.
        python: the interpreter on the nodes; default: the one that runs Ray there.
    """

    def __init__(self, address: str = "auto", isolation: str | None = None, python: str = sys.executable) -> None:
        self.python = python
        self._cluster = _Cluster(address)
        self._isolation = isolation
        self._sessions: set[_RaySession] = set()

    @classmethod
    def from_options(cls, options: SandboxOptions) -> Self:
        """Return the sandbox that a worker's options name; it is not started.

        Raises:
            ValueError: it does not support one of the options.
        """
        if options.image is not None:
            raise ValueError("`image` is for the provider `docker`")
        return cls(options.ray_address, options.isolation, options.python or sys.executable)

    async def start(self) -> None:
        if self._cluster.ray is not None:
            return
        ray = await self._cluster.join()
        self._slots = asyncio.Semaphore(max(1, int(ray.cluster_resources().get("CPU", 1))))
        self._run_there = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_run)
        self._host = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(_Host)

    def describe(self) -> str:
        return f"ray: nodes of the cluster {self._cluster.address!r}, on each the local sandbox"

    async def run(self, program: Program, limits: Limits) -> ProgramResult:
        await self.start()
        async with self._slots:
            task = self._run_there.remote(self._isolation, self.python, program, limits)
            with OnFailure(partial(self._cluster.ray.cancel, task, force=True)):
                ended: ProgramResult = await self._answer(task, limits.time_s)
        return ended

    async def open(self, program: Program, limits: Limits) -> ProgramSession:
        await self.start()
        session = _RaySession(self, self._host.remote(self._isolation, self.python))
        self._sessions.add(session)
        async with OnFailureAwait(session.close):
            await self._answer(session.actor.open.remote(program, limits), 0.0)
        return session

    async def stop(self) -> None:
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    async def _answer(self, reference: Any, seconds: float | None) -> Any:
        """Wait for the result of a program.

        Args:
            seconds: the program's own time limit; None: no limit.
        """
        limit_s = None if seconds is None else clock_s(seconds) + PATIENCE_S
        too_late = "Ray did not run a program in time: are its nodes full?"
        return await self._cluster.answer(reference, limit_s, too_late, "a program")


class _RaySession(ProgramSession):
    """A session in an actor."""

    warns = True

    def __init__(self, owner: RaySandbox, actor: Any) -> None:
        self._owner = owner
        self.actor = actor

    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        async with OnFailureAwait(self.close):
            reply: bytes = await self._owner._answer(self.actor.exchange.remote(message, timeout_s), timeout_s)
        return reply

    async def close(self) -> None:
        self._owner._sessions.discard(self)
        with contextlib.suppress(Exception):  # it may be gone; its program then is too
            self._owner._cluster.ray.kill(self.actor)


class _Host:
    """Runs as an actor: one session of a sandbox."""

    def __init__(self, isolation: str | None, python: str) -> None:
        self._sandbox = LocalSandbox(None, isolation, python)

    async def open(self, program: Program, limits: Limits) -> Exception | None:
        opened: ProgramSession | Exception = await _outcome(self._sandbox.open(program, limits))
        if isinstance(opened, Exception):
            return opened
        self._session = opened
        return None

    async def exchange(self, message: bytes, timeout_s: float) -> Any:
        return await _outcome(self._session.exchange(message, timeout_s))


def _run(isolation: str | None, python: str, program: Program, limits: Limits) -> Any:
    """Run a program in a Ray task."""

    async def run() -> Any:
        return await _outcome(LocalSandbox(1, isolation, python).run(program, limits))

    return asyncio.run(run())


class Ray(Workspace):
    """A `Subprocess` on some node, in an actor of its own. gymq has to be installed there; no isolation either.

    If this process dies, or the node is cut off from it, the programs end; the next runtime there removes their folder.

    Args:
        address: address of the cluster, as `ray.init` takes it.
        num_cpus: cores that the runtime takes; it waits until they are free.
        memory_mib: taken like cores, and the limit of a program with all that it starts.
        resources: others that the node must have, as Ray names them.
        env: variables of its programs.
        name, resumes: as for `Subprocess`, on whatever node it is.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        num_cpus: float = 1.0,
        memory_mib: int | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        resumes: bool = False,
    ) -> None:
        self._folder: dict[str, Any] = {"name": name, "resumes": resumes}
        self._cluster = _Cluster(address)
        self._num_cpus = num_cpus
        self._memory_mib = memory_mib
        self._resources = dict(resources or {})
        self._env = dict(env or {})
        self._actor: Any = None
        self._num_programs = 0

    async def gateway_host(self) -> str:
        ray = await self._cluster.join()
        return str(ray.util.get_node_ip_address())

    async def start(self) -> None:
        ray = await self._cluster.join()
        needs: dict[str, Any] = {"num_cpus": self._num_cpus, "resources": self._resources}
        if self._memory_mib is not None:
            needs["memory"] = self._memory_mib * MIB
        actor = ray.remote(**needs, max_restarts=0, scheduling_strategy="SPREAD")(_Node)
        self._actor = actor.remote(self._env, self._memory_mib, self._folder)
        wanted = f"{self._num_cpus:g} free CPUs" + (f" and {self._memory_mib} MiB" if self._memory_mib else "")
        with OnFailure(partial(ray.kill, self._actor)):
            await self._answer(self._actor.open.remote(), START_S, f"Ray has no node with {wanted}")

    async def stop(self) -> None:
        await asyncio.shield(self._leave())

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProgramResult:
        self._num_programs += 1
        number = self._num_programs
        ending = self._actor.run.remote(number, script, wall_s, dict(env or {}), stdin)
        async with OnFailureAwait(lambda: asyncio.shield(self._end(number))):
            limit_s = wall_s + GRACE_S + PATIENCE_S
            ended: ProgramResult = await self._answer(ending, limit_s, "Ray did not report how a program ended")
        return ended

    async def _end(self, number: int) -> None:
        with contextlib.suppress(ComponentFailed):  # the actor is gone; then the program is too
            await self._answer(self._actor.end.remote(number), GRACE_S + PATIENCE_S, "Ray did not end a program")

    async def _leave(self) -> None:
        with contextlib.suppress(ComponentFailed):
            await self._answer(self._actor.close.remote(), GRACE_S + PATIENCE_S, "Ray did not stop a runtime")
        self._cluster.ray.kill(self._actor)

    async def _answer(self, reference: Any, limit_s: float, too_late: str) -> Any:
        return await self._cluster.answer(
            reference, limit_s, f"{too_late} within {limit_s:g} s", "the actor of a runtime"
        )


class _Node:
    """Runs as an actor: a `Subprocess`."""

    def __init__(self, env: dict[str, str], memory_mib: int | None, folder: dict[str, Any]) -> None:
        self._place = Subprocess(env, memory_mib=memory_mib, **folder)
        self._program: asyncio.Task[ProgramResult] | None = None
        self._num_ended = 0

    async def open(self) -> Any:
        return await _outcome(self._place.start())

    async def run(self, number: int, script: str, wall_s: float, env: dict[str, str], stdin: bytes) -> Any:
        if number > self._num_ended:
            self._program = asyncio.create_task(self._place.run(script, wall_s=wall_s, env=env, stdin=stdin))
            with contextlib.suppress(asyncio.CancelledError):
                return await _outcome(self._program)
        return ComponentFailed("the program was ended")

    async def end(self, number: int) -> None:
        """End the programs up to this one, also if it is not there yet: calls may overtake each other."""
        self._num_ended = number
        if self._program is not None:
            self._program.cancel()
            await asyncio.wait([self._program])

    async def close(self) -> None:
        await self.end(sys.maxsize)
        await self._place.stop()
