"""One worker process: hosts any number of instances on one connection and one event loop.

Started by `gymq.launch` as `python -m gymq.host` with a `HostSpec` as the first line of standard input. It answers with
one line, `ready` when it serves or why it cannot, drains on SIGTERM, and ends. It also ends when its parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gymq import credentials, logs, parent_death, registry, subjects, tracing
from gymq.agent import Agent
from gymq.agent_runner import AgentRunner
from gymq.authoring import OptionsError, Worker
from gymq.bus import Bus, BusError
from gymq.calls import Calls
from gymq.discovery import Listing
from gymq.intake import Intake
from gymq.janitor import Janitor
from gymq.model import Model
from gymq.model_runner import BusModels, ModelRunner
from gymq.processes import KillableProcesses
from gymq.profiler import Profiler
from gymq.quarantine import Quarantine
from gymq.redaction import hide, hide_options, redact
from gymq.resources import Resources
from gymq.resources_runner import ResourcesRunner
from gymq.routing import RoutedCalls, Routes
from gymq.serving import Server
from gymq.weights_keeper import WeightsFailed

log = logging.getLogger("gymq.host")

READY = "ready"
MAX_ANSWER = 4000  # characters of the line that says why a process cannot start


class WorkerFailed(Exception):
    """A worker whose own code fails while it is made or started; one line."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what}: {type(error).__name__}: {' '.join(str(error).split())}")


class InstanceSpec(msgspec.Struct):
    """One worker to host."""

    name: str
    kind: registry.Kind
    implementation: str
    options: dict[str, Any] = {}


class HostSpec(msgspec.Struct):
    """What a process is to do."""

    url: str
    role: str
    instances: list[InstanceSpec] = []
    services: bool = False  # intake, janitor and profiler
    log_level: str = "info"
    drain_s: float = 30.0


class Host:
    """Everything that runs in one worker process."""

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec
        self.worker = f"{spec.role}-{os.getpid()}-{secrets.token_hex(4)}"
        self._workers: list[Worker] = []
        self._agents: list[AgentRunner] = []
        self._models: list[ModelRunner] = []
        self._resources: list[ResourcesRunner] = []
        self._services: list[Intake | Janitor | Profiler] = []
        self._processes = KillableProcesses()
        self._quarantine = Quarantine()
        self._bus: Bus | None = None
        self._server: Server | None = None

    async def start(self) -> None:
        """Connect, load every worker, then serve.

        Raises:
            BusError, WorkerNotFound, OptionsError, WorkerFailed
        """
        spec = self._spec
        built = [build(instance) for instance in spec.instances]
        self._bus = bus = await Bus.connect(spec.url, role=spec.role, name=self.worker)
        calls = Calls(bus)
        routes = Routes(bus)
        if any(isinstance(worker, Agent) for worker in built):
            await routes.start()
        self._server = server = Server(bus, self.worker)
        await server.start()
        for instance, worker in zip(spec.instances, built, strict=True):
            try:
                await worker.start()
            except (Exception, SystemExit) as error:
                raise WorkerFailed(f"{instance.name} cannot start", error) from error
            self._workers.append(worker)
            try:
                await self._serve(instance, worker, bus, calls, routes, server)
            except WeightsFailed as error:
                raise WorkerFailed(f"{instance.name} cannot start", error) from error
        if spec.services:
            self._services = [Intake(bus), Janitor(bus), Profiler(bus)]
            for service in self._services:
                await service.start()

    async def _serve(
        self, instance: InstanceSpec, worker: Worker, bus: Bus, calls: Calls, routes: Routes, server: Server
    ) -> None:
        first = len(server.services)
        model: ModelRunner | None = None
        if isinstance(worker, Agent):
            routed = RoutedCalls(calls, routes)
            runner = AgentRunner(bus, routed, worker, worker=self.worker, quarantine=self._quarantine)
            await runner.start()
            self._agents.append(runner)
            await self._list(instance, [subjects.tasks_of_agent(worker.name)], runner.stats)
            return
        if isinstance(worker, Model):
            model = ModelRunner(worker)
            await model.serve(server)
            self._models.append(model)
            sessions = None
        else:
            assert isinstance(worker, Resources)
            worker.models = BusModels(calls)
            resources = ResourcesRunner(worker, self._processes)
            await resources.serve(server)
            self._resources.append(resources)
            sessions = resources.worker.sessions
        mine = server.services[first:]

        def stats() -> dict[str, Any]:
            return {
                "num_requests": sum(service.num_requests for service in mine),
                "num_errors": sum(service.num_errors for service in mine),
                "processing_s": sum(service.processing_s for service in mine),
                "load": sum(service.load for service in mine),
                **({} if sessions is None else {"sessions": len(sessions)}),
                **({} if model is None else model.stats()),
            }

        await self._list(instance, [service.subject for service in mine], stats)

    async def _list(self, instance: InstanceSpec, serves: list[str], stats: Any) -> None:
        assert self._bus is not None
        listing = Listing(
            self._bus,
            name=instance.name,
            worker=self.worker,
            kind=instance.kind,
            implementation=instance.implementation,
            subjects=serves,
            stats=stats,
        )
        await listing.start()

    async def drain(self) -> None:
        """Finish or give back what is in hand, then stop."""
        deadline_s = self._spec.drain_s
        await asyncio.gather(*(runner.drain(deadline_s) for runner in self._agents))
        for service in self._services:
            await service.stop()
        await asyncio.gather(*(runner.stop() for runner in self._models))
        if self._server is not None:
            await self._server.leave("gym.seed.")
        await asyncio.gather(*(runner.drain(deadline_s) for runner in self._resources))
        if self._server is not None:
            await self._server.drain(deadline_s)
        for worker in self._workers:
            await worker.stop()
        self._processes.close()
        if self._bus is not None:
            await self._bus.close()

    async def lost(self) -> None:
        """Returns when the connection is closed for good."""
        assert self._bus is not None
        await self._bus.lost.wait()


def build(instance: InstanceSpec) -> Worker:
    """The worker object of an instance, its options checked.

    Raises:
        WorkerNotFound, OptionsError, BadToken, WorkerFailed
    """
    found = registry.find(instance.kind, instance.implementation)
    name = subjects.token(instance.name, "instance")
    try:
        return found(instance.options, name=name)
    except OptionsError:
        raise
    except Exception as error:
        raise WorkerFailed(f"{name} cannot be made", error) from error


async def run(spec: HostSpec, answer: Callable[[str], None]) -> int:
    """Run a worker process until it is told to stop; its exit status.

    Args:
        answer: is given `ready`, or one line that says why not.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    host = Host(spec)
    _hide_secrets(spec)
    logs.configure(host.worker, spec.log_level)
    try:
        tracing.start(host.worker)
    except tracing.TracingMissing as missing:
        answer(str(missing))
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), lambda: stop.set() if not os.read(sys.stdin.fileno(), 4096) else None)
    stopped = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(host.start())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        return 0
    error = starting.exception()
    if error is not None:
        if not isinstance(error, BusError | registry.WorkerNotFound | OptionsError | subjects.BadToken):
            log.error("cannot start", exc_info=error)
        answer(" ".join(redact(str(error)).split())[:MAX_ANSWER])
        return 2
    answer(READY)
    lost = asyncio.create_task(host.lost())
    await asyncio.wait([lost, stopped], return_when=asyncio.FIRST_COMPLETED)
    if lost.done():
        log.error("the connection to NATS is closed for good")
        return 1
    loop.remove_reader(sys.stdin.fileno())
    await host.drain()
    await asyncio.to_thread(tracing.stop)
    return 0


def _hide_secrets(spec: HostSpec) -> None:
    for instance in spec.instances:
        hide_options(instance.options)
    for url in spec.url.split(","):
        hide(urlsplit(url).password or "")


def raise_open_files() -> None:
    """Raise the limit of this process: it may hold thousands of connections; the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> int:
    parent_death.die_with_parent(os.getppid())
    credentials.hide_memory()
    raise_open_files()
    first_line = sys.stdin.buffer.readline()
    if not first_line:
        return 1  # the parent was gone before it said anything
    # Authors print. What they print belongs into the log, not into the answer to the parent.
    to_parent = os.dup(1)
    os.dup2(2, 1)

    def answer(line: str) -> None:
        os.write(to_parent, f"{line}\n".encode())

    work = run(msgspec.json.decode(first_line, type=HostSpec), answer)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    sys.exit(main())
