"""One worker process: hosts any number of instances on one connection and one event loop.

Forked by `gymq.cluster.forkserver`, with a socket to the process that wants it, which sends its `StartContext` and its
`ProcessSpec`. It answers with one line, `ready` when it serves or why it cannot, drains on SIGTERM, and ends. It also
ends when the other end of the socket is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import faulthandler
import logging
import os
import resource
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gymq.agent import Agent
from gymq.authoring import OptionsError, Worker
from gymq.bus import Bus, BusError
from gymq.bus.discovery import ServiceListing, check_versions
from gymq.bus.rpc import tracing
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.process_reports import ProcessReport
from gymq.bus.rpc.quarantine import Quarantine, SuspectCall, SuspectCalls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.bus.rpc.serving import Server, Service
from gymq.cluster import event_loop, logs
from gymq.cluster.cells import ROLE
from gymq.cluster.loop_watch import LoopWatch
from gymq.cluster.process_spec import ANSWER, READY, SUSPECTS, ProcessSpec, StartContext
from gymq.errors import GymqError, UsageError
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.loading import registry
from gymq.execution.loading.building import WorkerFailed, build
from gymq.execution.model_runner import BusModels, ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.execution.services.intake import Intake
from gymq.execution.services.janitor import Janitor
from gymq.execution.services.profiler import Profiler
from gymq.model import Model
from gymq.processes import KillableProcesses, memory
from gymq.processes.background import end_task
from gymq.processes.failing import FailureLogged
from gymq.processes.open_files import raise_open_files
from gymq.protocol import subjects
from gymq.protocol.instances import PROFILES_VARIABLE, Instance
from gymq.protocol.messages import MAX_TEXT_CHARS
from gymq.redaction import hide_options, hide_passwords, redact
from gymq.resources import Resources

log = logging.getLogger("gymq.cluster.worker_process")


class InstanceHost:
    """Everything that runs in one worker process."""

    def __init__(
        self, spec: ProcessSpec, made: Mapping[str, Worker] | None = None, suspects: SuspectCalls | None = None
    ) -> None:
        """Prepare a host for the workers of a spec.

        Args:
            made: workers that exist already, by instance name; the others are loaded.
            suspects: the calls at work that may end the process.
        """
        self._spec = spec
        self._suspects = suspects
        self._made = made or {}
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
        built = [self._made.get(instance.name) or build(instance) for instance in spec.instances]
        self._bus = bus = await Bus.connect(spec.url, role=spec.role, name=self.worker)
        if spec.joins:
            await check_versions(bus)
        self._server = server = Server(bus, self.worker, self._suspects)
        await server.start()
        calls, routes = Calls(bus, server), Routes(bus, server)
        if any(isinstance(worker, Agent) for worker in built):
            await routes.start()
        for instance, worker in zip(spec.instances, built, strict=True):
            try:
                await worker.start()
            except (Exception, SystemExit) as error:
                raise WorkerFailed(instance.name, "cannot start", error) from error
            self._workers.append(worker)
            try:
                await self._serve(instance, worker, bus, calls, routes, server)
            except UsageError as error:
                raise WorkerFailed(instance.name, "cannot start", error) from error
        if spec.services:
            self._services = [Intake(bus), Janitor(bus), Profiler(bus)]
            for service in self._services:
                await service.start()
            await ServiceListing(
                bus,
                name="gymq-services",
                worker=self.worker,
                kind=spec.role,
                implementation="gymq",
                subjects=[subjects.SUBMISSION.pattern],
                stats=dict,
            ).start()

    async def _serve(
        self, instance: Instance, worker: Worker, bus: Bus, calls: Calls, routes: Routes, server: Server
    ) -> None:
        first = len(server.services)
        runner: AgentRunner | ModelRunner | ResourcesRunner
        if isinstance(worker, Agent):
            routed = RoutedCalls(calls, routes)
            runner = agent = AgentRunner(
                bus, routed, worker, worker=self.worker, quarantine=self._quarantine, admission=routes.admission
            )
            await agent.start()
            self._agents.append(agent)
        elif isinstance(worker, Model):
            runner = model = ModelRunner(worker)
            await model.serve(server)
            self._models.append(model)
        else:
            assert isinstance(worker, Resources)
            worker.models = BusModels(calls)
            runner = resources = ResourcesRunner(worker, self._processes)
            await resources.serve(server)
            self._resources.append(resources)
        own = server.services[first:]  # An agent has none.
        await ServiceListing(
            bus,
            name=instance.name,
            worker=self.worker,
            kind=instance.kind,
            implementation=instance.implementation,
            digest=instance.digest,
            subjects=[service.subject for service in own] or [subjects.TASK.of(subjects.EACH, worker.name)],
            stats=lambda: {**_stats(own), **runner.stats(), **self._report(bus, calls, server)},
        ).start()

    def _report(self, bus: Bus, calls: Calls, server: Server) -> dict[str, Any]:
        """Return what this process waits for and its memory, as each of its instances reports it."""
        queued = {reason: count for agent in self._agents for reason, count in agent.held_back().items()}
        report = ProcessReport(calls.open.by_run(), dict(bus.unstored), server.held_back(), queued)
        return msgspec.structs.asdict(report) | {"memory_bytes": _resident_bytes()}

    async def drain(self) -> None:
        """Finish or requeue what is in flight, then stop."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._spec.drain_s
        await asyncio.gather(*(runner.drain(give_up - loop.time()) for runner in self._agents))
        for service in self._services:
            await service.stop()
        await asyncio.gather(*(runner.stop() for runner in self._models))
        if self._server is not None:
            await self._server.leave(subjects.SEEDS)
        await asyncio.gather(*(runner.drain(give_up - loop.time()) for runner in self._resources))
        if self._server is not None:
            await self._server.drain(give_up - loop.time())
        await asyncio.gather(*(runner.close() for runner in self._resources))
        await self.release()

    async def release(self) -> None:
        """Stop the workers and disconnect, whatever is in flight."""
        workers, self._workers = self._workers, []
        for worker in workers:
            with FailureLogged(log, "%s did not stop cleanly", worker.name):
                await worker.stop()
        self._processes.close()
        if self._bus is not None:
            await self._bus.close()

    async def lost(self) -> None:
        """Wait until the connection is closed for good."""
        assert self._bus is not None
        await self._bus.lost.wait()


async def run(spec: ProcessSpec, parent: socket.socket, refused: Mapping[str, str] | None = None) -> int:
    """Run a worker process until it is asked to stop, and return its exit status.

    Args:
        refused: why suspect calls are refused, by the rollout; None: none is.
        parent: gets `ready`, or one line that says why the process cannot start; its other end is closed to stop it.
    """

    def answer(line: str) -> None:
        parent.sendall(ANSWER + f"{line}\n".encode())

    def report(suspects: list[SuspectCall]) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            parent.sendall(SUSPECTS + msgspec.json.encode(suspects) + b"\n")

    def on_parent() -> None:
        if not os.read(parent.fileno(), 4096):
            loop.remove_reader(parent)
            stop.set()

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    host = InstanceHost(spec, suspects=SuspectCalls(refused, report))
    _hide_secrets(spec)
    logs.configure(host.worker, spec.log_level)
    try:
        tracing.start(host.worker)
    except GymqError as missing:
        answer(str(missing))
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(parent, on_parent)
    stopped = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(host.start())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await end_task(starting)
        await host.release()
        return 0
    error = starting.exception()
    if error is not None:
        if not isinstance(error, BusError | registry.WorkerNotFound | OptionsError | subjects.BadToken):
            log.error("cannot start", exc_info=error)
        answer(" ".join(redact(str(error)).split())[:MAX_TEXT_CHARS])
        await host.release()
        return 2
    answer(READY)
    return await _serve(host, spec, parent, stopped)


async def _serve(host: InstanceHost, spec: ProcessSpec, parent: socket.socket, stopped: asyncio.Task[bool]) -> int:
    watch = LoopWatch(parent)
    if spec.role in ("resources", ROLE):
        watch.start()
    lost = asyncio.create_task(host.lost())
    await asyncio.wait([lost, stopped], return_when=asyncio.FIRST_COMPLETED)
    if lost.done():
        log.error("the connection to NATS is closed permanently")
        await host.release()
        return 1
    watch.stop()
    await host.drain()
    await asyncio.to_thread(tracing.stop)
    return 0


def _hide_secrets(spec: ProcessSpec) -> None:
    for instance in spec.instances:
        hide_options(instance.options)
    for text in (spec.url, *os.environ.values()):  # those of proxies and of registries of packages are in the latter
        hide_passwords(text)


def main(parent: socket.socket) -> int:
    """Be a worker process, for the other end of a socket; return the exit status."""
    faulthandler.enable()
    memory.hide_memory()
    raise_open_files()
    with parent.makefile("rb") as lines:
        first, second = lines.readline(), lines.readline()
    if not second:
        return 1  # the parent was gone before it said anything
    context = msgspec.json.decode(first, type=StartContext)
    spec = msgspec.json.decode(second, type=ProcessSpec)
    os.chdir(context.folder)
    os.environ.clear()
    os.environ.update(context.environment | spec.variables)
    folder = os.environ.get(PROFILES_VARIABLE)
    if not folder:
        return event_loop.run(run(spec, parent, context.refused))
    profile = cProfile.Profile()
    try:
        return profile.runcall(event_loop.run, run(spec, parent, context.refused))
    finally:
        _write_profile(profile, Path(folder), "-".join(found.name for found in spec.instances)[:100] or spec.role)


def _write_profile(profile: cProfile.Profile, folder: Path, name: str) -> None:
    """Write what `pstats` and viewers such as snakeviz read. Names of instances are safe in names of files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(folder / f"{name}-{os.getpid()}.prof")
    except OSError as error:
        log.error("no profile is written: %s", error)


def _stats(services: Sequence[Service]) -> dict[str, Any]:
    """Return what the services of one instance have done; nothing of one without services."""
    if not services:
        return {}
    return {
        "num_requests": sum(service.num_requests for service in services),
        "num_errors": sum(service.num_errors for service in services),
        "processing_s": sum(service.processing_s for service in services),
        "load": sum(service.load for service in services),
        "blocked": next((service.blocked for service in services if service.blocked), ""),
    }


def _resident_bytes() -> int | None:
    """Return the memory of this process in bytes; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()
