"""Programs on the nodes of a Ray cluster. Ray gives the place, the local sandbox of that node the isolation."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from gymq.ray_cluster import NoCluster, join
from gymq.sandbox.interface import Finished, Limits, Program, Sandbox, SandboxFailed, Session, SessionEnded, clock_s
from gymq.sandbox.local import LocalSandbox

_PATIENCE_S = 60.0  # for Ray, beside the time of the program


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
        self._address = address
        self._isolation = isolation
        self._ray: Any = None
        self._sessions: set[_RaySession] = set()

    async def start(self) -> None:
        if self._ray is not None:
            return
        try:
            ray = await asyncio.to_thread(join, self._address)
        except NoCluster as error:
            raise SandboxFailed(str(error)) from None
        self._ray = ray
        self._slots = asyncio.Semaphore(max(1, int(ray.cluster_resources().get("CPU", 1))))
        self._run_there = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_run)
        self._host = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(_Host)

    def describe(self) -> str:
        return f"ray: nodes of the cluster {self._address!r}, on each the local sandbox"

    async def run(self, program: Program, limits: Limits) -> Finished:
        await self.start()
        async with self._slots:
            task = self._run_there.remote(self._isolation, self.python, program, limits)
            try:
                outcome = await self._answer(task, limits.time_s)
            except BaseException:
                self._ray.cancel(task, force=True)
                raise
        if isinstance(outcome, str):
            raise SandboxFailed(outcome)
        finished: Finished = outcome
        return finished

    async def open(self, program: Program, limits: Limits) -> Session:
        await self.start()
        session = _RaySession(self, self._host.remote(self._isolation, self.python))
        self._sessions.add(session)
        try:
            problem = await self._answer(session.actor.open.remote(program, limits), 0.0)
        except BaseException:
            await session.close()
            raise
        if problem is not None:
            await session.close()
            raise SandboxFailed(problem)
        return session

    async def stop(self) -> None:
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    async def _answer(self, reference: Any, seconds: float | None) -> Any:
        """
        Args:
            seconds: that the program may take of its own; None: no limit.

        Raises:
            SandboxFailed: Ray lost it.
        """
        try:
            async with asyncio.timeout(None if seconds is None else clock_s(seconds) + _PATIENCE_S):
                return await reference
        except TimeoutError:
            raise SandboxFailed("Ray did not run a program in time: are its nodes full?") from None
        except self._ray.exceptions.RayError as error:
            raise SandboxFailed(f"Ray lost a program: {type(error).__name__}") from None


class _RaySession(Session):
    """A session in an actor."""

    warns = True

    def __init__(self, owner: RaySandbox, actor: Any) -> None:
        self._owner = owner
        self.actor = actor

    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        try:
            kind, answer = await self._owner._answer(self.actor.exchange.remote(message, timeout_s), timeout_s)
        except BaseException:
            await self.close()
            raise
        if kind == "answer":
            reply: bytes = answer
            return reply
        await self.close()
        if kind == "failed":
            raise SandboxFailed(str(answer))
        raise TimeoutError if kind == "timeout" else SessionEnded(str(answer))

    async def close(self) -> None:
        self._owner._sessions.discard(self)
        with contextlib.suppress(Exception):  # it may be gone; its program then is too
            self._owner._ray.kill(self.actor)


class _Host:
    """Runs as an actor: one session, on an event loop of its own in the main thread."""

    def __init__(self, isolation: str | None, python: str) -> None:
        self._runner = asyncio.Runner()
        self._sandbox = LocalSandbox(None, isolation, python)
        self._session: Session | None = None

    def open(self, program: Program, limits: Limits) -> str | None:
        """What went wrong, if anything did."""
        try:
            self._session = self._runner.run(self._sandbox.open(program, limits))
        except SandboxFailed as error:
            return error.message
        return None

    def exchange(self, message: bytes, timeout_s: float) -> tuple[str, Any]:
        assert self._session is not None
        try:
            return "answer", self._runner.run(self._session.exchange(message, timeout_s))
        except TimeoutError:
            return "timeout", None
        except SessionEnded as error:
            return "ended", str(error)
        except SandboxFailed as error:
            return "failed", error.message


def _run(isolation: str | None, python: str, program: Program, limits: Limits) -> Finished | str:
    """Runs as a task: what became of the program, or why it did not run."""

    async def run() -> Finished:
        return await LocalSandbox(1, isolation, python).run(program, limits)

    try:
        return asyncio.run(run())
    except SandboxFailed as error:
        return error.message
