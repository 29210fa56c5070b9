"""Starts a cluster on this machine: the embedded server if none is given, the streams, and the worker processes.

Light workers share a process by kind, or all of them with the layout `cells`, where each core has such a process. An
instance with `num_workers: N` gets N processes of its own, one that is `isolated` a process with its own Python
environment, and one with `pass_env` a process with these variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from gymq.bus import Bus, credentials, streams
from gymq.bus.credentials import OPERATOR, SERVICES
from gymq.bus.discovery import check_versions
from gymq.cluster import cells, spawner
from gymq.cluster.child import Child
from gymq.cluster.process_spec import ProcessSpec
from gymq.cluster.server import EmbeddedServer
from gymq.config import digest_of
from gymq.defaults import Layout
from gymq.execution.services.run_queues import RunQueues
from gymq.processes.failing import FailureLogged
from gymq.processes.keeping import keep_running, shown_status
from gymq.protocol.instances import ROLE_OF, Instance

log = logging.getLogger("gymq.launch")

LOG_MAX_BYTES = 64 << 20  # of each process; what is older is kept once more beside it, as NAME.old.log
LOG_CHECK_S = 30.0
# Roles; agents first: the others must answer until the last rollout is done.
STOPPED_IN_ORDER = ("agent", cells.ROLE, SERVICES, "resources", "model")


class WorkerProcess(Protocol):
    """A process that is kept alive, here or elsewhere."""

    name: str
    spec: ProcessSpec
    serves: bool

    async def start(self) -> None:
        """Start it and wait until it serves."""

    async def stop(self) -> None:
        """Let it drain; kill it when it takes too long."""


@dataclass(frozen=True)
class Deployment:
    """The place of a cluster among others; by default all of it runs on this machine.

    Attributes:
        url: URL of a NATS server with JetStream to use instead of the embedded one.
        replicas: copies of each stream, on a cluster of servers.
        agents: names of the agent instances that get queues, wherever they run; None: those that run here.
        services: whether intake, janitor and profiler run here.
        logs_to_stderr: whether processes log to this process's stderr instead of to files in the cluster's folder.
    """

    url: str | None = None
    replicas: int = 1
    agents: list[str] | None = None
    services: bool = True
    logs_to_stderr: bool = False


class Cluster:
    """A running cluster; use it with `async with`."""

    def __init__(
        self,
        instances: Iterable[Instance],
        *,
        folder: Path,
        deployment: Deployment = Deployment(),
        ack_wait_s: float | None = None,
        log_level: str = "info",
        drain_s: float = 30.0,
        variables: Mapping[str, str] | None = None,
        new_child: Callable[[str, ProcessSpec], WorkerProcess] | None = None,
        prepare: Callable[[Bus], Awaitable[None]] | None = None,
        layout: Layout = "kinds",
    ) -> None:
        """Prepare a cluster of worker processes.

        Args:
            folder: folder for the streams of the embedded server and the logs of all processes.
            ack_wait_s: seconds of silence after which an agent's tasks are redelivered; None: `streams.ACK_WAIT_S`.
            variables: environment variables of all processes.
            new_child: returns a process with a name, not started yet; None: processes on this machine.
            prepare: called with the streams of the embedded server before any worker uses them.
            layout: whether light workers share processes by kind, or in cells (`gymq.cluster.cells`).
        """
        self._instances = _with_digests(instances)
        self._folder = folder
        self._deployment = deployment
        self._ack_wait_s = ack_wait_s
        self._log_level = log_level
        self._drain_s = drain_s
        self._variables = dict(variables or {})
        self._new_child = new_child or self._child_here
        self._prepare = prepare
        self._layout = layout
        self._is_started = False
        self._server: EmbeddedServer | None = None
        self._running = AsyncExitStack()
        self.children: list[WorkerProcess] = []
        self.url = deployment.url or ""

    async def __aenter__(self) -> Cluster:
        async with AsyncExitStack() as stack:
            if self._deployment.url is None:
                await self._start_server(stack)
            plan = self._plan()
            if credentials.may_take(self.url, OPERATOR):
                await self._keep_streams(stack)
            else:
                log.warning("no password of the role operator here: streams are used as they are")
            if not self._deployment.logs_to_stderr:
                (self._folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.callback(asyncio.create_task(_trim(self._folder / "logs")).cancel)
            self.children = [self._new_child(name, spec) for name, spec in plan]
            stack.push_async_callback(self._stop_children)
            try:
                async with asyncio.TaskGroup() as group:
                    for child in self.children:
                        group.create_task(child.start())
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
            self._is_started = True
            self._running = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    @property
    def not_serving(self) -> list[str]:
        """The processes that do not serve at this moment; all that there will be while it starts."""
        names = [child.name for child in self.children if not child.serves]
        return names if self._is_started or names else ["streams"]  # they are made first

    def _child_here(self, name: str, spec: ProcessSpec) -> Child:
        log_file = None if self._deployment.logs_to_stderr else self._folder / "logs" / f"{name}.log"
        return Child(name, spec, log_file, self._folder / "environments")

    async def _start_server(self, stack: AsyncExitStack) -> None:
        self._server = server = EmbeddedServer(self._folder / "jetstream")
        stack.push_async_callback(server.stop)
        await server.start()
        self.url = server.url

        async def ended() -> str:
            return shown_status(await server.wait())

        # All other processes wait for the server, which starts in a moment: its pause is short again soon.
        watching = keep_running("nats-server", ended, server.start, stays_up_s=1.0)
        stack.callback(asyncio.create_task(watching).cancel)

    async def _keep_streams(self, stack: AsyncExitStack) -> None:
        bus = await Bus.connect(self.url, role=OPERATOR, name="gymq launch")
        stack.push_async_callback(bus.close)
        await check_versions(bus)
        agents = self._deployment.agents
        if agents is None:
            agents = [instance.name for instance in self._instances if instance.kind == "agents"]
        await streams.ensure(bus.js, agents, replicas=self._deployment.replicas, ack_wait_s=self._ack_wait_s)
        if self._server is not None:
            # No other process uses a server that has just been started here.
            if self._prepare is not None:
                await self._prepare(bus)
            await streams.reclaim_in_flight(bus.js)
        queues = RunQueues(bus)
        stack.push_async_callback(queues.stop)
        await queues.start()

    async def replace_children(self) -> None:
        """Stop the processes and start them as gymq is installed now, one after the other, while the others serve.

        Raises:
            UsageError: one cannot start again; those that follow are as they were.
        """
        spawner.load_again()
        for child in (child for role in STOPPED_IN_ORDER for child in self._of_role(role)):
            await _stop_child(child)
            child.spec.instances = _with_digests(child.spec.instances)
            await child.start()

    async def _stop_children(self) -> None:
        for role in STOPPED_IN_ORDER:
            await asyncio.gather(*(_stop_child(child) for child in self._of_role(role)))

    def _of_role(self, role: str) -> list[WorkerProcess]:
        return [child for child in self.children if child.spec.role == role]

    def _plan(self) -> list[tuple[str, ProcessSpec]]:
        shared: dict[str, list[Instance]] = {}
        planned: list[tuple[str, list[Instance], str]] = []
        in_cells = cells.cells(self._instances) if self._layout == "cells" else []
        for instance in self._instances:
            if in_cells and instance in in_cells[0]:
                continue
            copies = instance.options.get("num_workers") or 1
            if copies == 1 and not instance.options.get("isolated") and not instance.options.get("pass_env"):
                shared.setdefault(instance.kind, []).append(instance)
                continue
            for number in range(copies):
                planned.append((f"{instance.name}-{number}", [instance], ROLE_OF[instance.kind]))
        planned += [(kind, instances, ROLE_OF[kind]) for kind, instances in shared.items()]
        planned += [(f"{cells.ROLE}-{number}", instances, cells.ROLE) for number, instances in enumerate(in_cells)]
        specs = [(name, self._spec(role, instances)) for name, instances, role in planned]
        if not self._deployment.services:
            return specs
        if credentials.may_take(self.url, SERVICES):
            specs.append((SERVICES, self._spec(SERVICES, [])))
        else:
            log.warning("no password of the role services here: the services must run elsewhere")
        return specs

    def _spec(self, role: str, instances: list[Instance]) -> ProcessSpec:
        url = credentials.url_of_role(self.url, role)  # a process gets its own password and no other
        return ProcessSpec(
            url,
            role,
            instances,
            services=role == SERVICES,
            log_level=self._log_level,
            drain_s=self._drain_s,
            variables=self._variables,
            joins=self._server is None,
        )


def _with_digests(instances: Iterable[Instance]) -> list[Instance]:
    return [msgspec.structs.replace(instance, digest=digest_of(instance)) for instance in instances]


async def _stop_child(child: WorkerProcess) -> None:
    """Stop a process; one that cannot be stopped must keep neither the others nor the server running."""
    with FailureLogged(log, "%s did not stop cleanly", child.name):
        await child.stop()


async def _trim(folder: Path) -> None:
    while True:
        await asyncio.to_thread(_trim_once, folder)
        await asyncio.sleep(LOG_CHECK_S)


def _trim_once(folder: Path) -> None:
    for file in folder.glob("*.log"):
        with contextlib.suppress(OSError):
            if file.suffixes != [".old", ".log"] and file.stat().st_size > LOG_MAX_BYTES:
                # The process keeps appending to the file that it has open, so the file is emptied, not replaced.
                with contextlib.suppress(OSError):  # of a full disk, which would stay full
                    shutil.copy(file, file.with_suffix(".old.log"))  # with its mode
                os.truncate(file, 0)
