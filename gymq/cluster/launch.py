"""Starts a cluster on this machine: the embedded server if none is given, the streams, and the worker processes.

Light workers share a process by kind; an instance with `num_workers: N` gets N processes of its own, one that is
`isolated` a process with its own Python environment, and one with `pass_env` a process with these variables. A process
that dies is started again, with a growing pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from gymq.bus import Bus, credentials, streams
from gymq.cluster import logs, spawner
from gymq.cluster.environments import CannotIsolate, python_for
from gymq.cluster.server import EmbeddedServer, ServerError
from gymq.cluster.server.roles import OPERATOR, SERVICES
from gymq.cluster.worker_process import READY, ProcessSpec, StartContext
from gymq.config import digest_of
from gymq.errors import GymqError
from gymq.execution.services.run_queues import RunQueues
from gymq.processes.passed_environment import passed
from gymq.protocol.instances import ROLE_OF, Instance
from gymq.protocol.subjects import RolloutId
from gymq.redaction import redact

log = logging.getLogger("gymq.launch")

READY_S = 1800.0  # a model may take its time to load
STILL_STARTING_S = 30.0
ENDS_BY_ITSELF_S = 5.0  # a process that could not start
SHORTEST_PAUSE_S = 0.25  # before a process that ended is started again; doubled each time
LONGEST_PAUSE_S = 10.0
STAYS_UP_S = 60.0  # after which the pause is short again
SERVER_STAYS_UP_S = 1.0  # all others wait for it, and it starts in a moment
LOG_MAX_BYTES = 64 << 20  # of each process; what is older is kept once more beside it, as NAME.old.log
LOG_CHECK_S = 30.0
MOST_REFUSED = 100  # calls that are known to end the process
TAIL_LINES = 5  # of a log, in the sentence about a process that ended
TAIL_BYTES = 16 << 10
STDERR = 2  # also where `sys.stderr` is another object, as in a notebook


class LaunchError(GymqError):
    """A part of the cluster could not be started; one sentence."""


class WorkerProcess(Protocol):
    """A process that is kept alive, here or elsewhere."""

    name: str
    spec: ProcessSpec
    serves: bool

    async def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            LaunchError
        """

    async def stop(self) -> None:
        """Let it drain; kill it when it takes too long."""


class Cluster:
    """A running cluster; use it with `async with`."""

    def __init__(
        self,
        instances: Iterable[Instance],
        *,
        folder: Path,
        url: str | None = None,
        replicas: int = 1,
        ack_wait_s: float | None = None,
        log_level: str = "info",
        drain_s: float = 30.0,
        agents: Iterable[str] | None = None,
        services: bool = True,
        logs_to_stderr: bool = False,
        variables: Mapping[str, str] | None = None,
        new_child: Callable[[str, ProcessSpec], WorkerProcess] | None = None,
        prepare: Callable[[Bus], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare a cluster of worker processes.

        Args:
            folder: folder for the streams of the embedded server and the logs of all processes.
            url: URL of a NATS server with JetStream to use instead of the embedded one.
            replicas: copies of each stream, on a cluster of servers.
            ack_wait_s: seconds of silence after which an agent's tasks are redelivered; None: `streams.ACK_WAIT_S`.
            agents: names of the agent instances that get queues, wherever they run; None: those of `instances`.
            services: whether intake, janitor and profiler run here.
            logs_to_stderr: whether processes log to this process's stderr instead of to files in `folder`.
            variables: environment variables of all processes.
            new_child: returns a process with a name, not started yet; None: processes on this machine.
            prepare: called with the streams of the embedded server before any worker uses them.
        """
        self._instances = [msgspec.structs.replace(instance, digest=digest_of(instance)) for instance in instances]
        self._folder = folder
        self._given_url = url
        self._replicas = replicas
        self._ack_wait_s = ack_wait_s
        self._log_level = log_level
        self._drain_s = drain_s
        of_instances = [instance.name for instance in self._instances if instance.kind == "agents"]
        self._agents = of_instances if agents is None else list(agents)
        self._services = services
        self._logs_to_stderr = logs_to_stderr
        self._variables = dict(variables or {})
        self._new_child = new_child or self._child_here
        self._prepare = prepare
        self._is_started = False
        self._server: EmbeddedServer | None = None
        self._bus: Bus | None = None  # as the operator
        self._queues: RunQueues | None = None
        self._watching_server: asyncio.Task[None] | None = None
        self._trimming: asyncio.Task[None] | None = None
        self.children: list[WorkerProcess] = []
        self.url = url or ""

    async def __aenter__(self) -> Cluster:
        try:
            if self._given_url is None:
                self._server = EmbeddedServer(self._folder / "jetstream")
                await self._server.start()
                self.url = self._server.url
                self._watching_server = asyncio.create_task(
                    keep_running("nats-server", self._server_ended, self._server.start, stays_up_s=SERVER_STAYS_UP_S)
                )
            if credentials.may_take(self.url, OPERATOR):
                self._bus = await Bus.connect(self.url, role=OPERATOR, name="gymq launch")
                await self._make_streams(self._bus)
                self._queues = RunQueues(self._bus)
                await self._queues.start()
            else:
                log.warning("no password of the role operator here: streams are used as they are")
            if not self._logs_to_stderr:
                (self._folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
                self._trimming = asyncio.create_task(_trim(self._folder / "logs"))
            self.children = [self._new_child(name, spec) for name, spec in self._plan()]
            async with asyncio.TaskGroup() as group:
                for child in self.children:
                    group.create_task(child.start())
            self._is_started = True
        except BaseException as error:
            await self._stop()
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from None
            if isinstance(error, credentials.CredentialsError):
                raise LaunchError(str(error)) from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def not_serving(self) -> list[str]:
        """The processes that do not serve at this moment; all that there will be while it starts."""
        names = [child.name for child in self.children if not child.serves]
        return names if self._is_started or names else ["streams"]  # they are made first

    def _child_here(self, name: str, spec: ProcessSpec) -> Child:
        log_file = None if self._logs_to_stderr else self._folder / "logs" / f"{name}.log"
        return Child(name, spec, log_file, self._folder / "environments")

    async def _make_streams(self, bus: Bus) -> None:
        await streams.ensure(bus.js, self._agents, replicas=self._replicas, ack_wait_s=self._ack_wait_s)
        if self._server is not None:
            # No other process uses a server that has just been started here.
            if self._prepare is not None:
                await self._prepare(bus)
            await streams.reclaim_in_flight(bus.js)

    async def _server_ended(self) -> str:
        assert self._server is not None
        return shown_status(await self._server.wait())

    async def _stop(self) -> None:
        # Agents first: the others must answer until the last rollout is done.
        for role in ("agent", "services", "resources", "model"):
            await asyncio.gather(*(_stop_child(child) for child in self.children if child.spec.role == role))
        if self._trimming is not None:
            self._trimming.cancel()
        if self._queues is not None:
            await self._queues.stop()
        if self._bus is not None:
            await self._bus.close()
        if self._server is not None:
            if self._watching_server is not None:
                self._watching_server.cancel()
            await self._server.stop()

    def _plan(self) -> list[tuple[str, ProcessSpec]]:
        """Return a name and a spec for each process."""
        shared: dict[str, list[Instance]] = {}
        planned: list[tuple[str, list[Instance], str]] = []
        for instance in self._instances:
            copies = instance.options.get("num_workers") or 1
            if copies == 1 and not instance.options.get("isolated") and not instance.options.get("pass_env"):
                shared.setdefault(instance.kind, []).append(instance)
                continue
            for number in range(copies):
                planned.append((f"{instance.name}-{number}", [instance], instance.kind))
        planned += [(kind, instances, kind) for kind, instances in shared.items()]
        specs = [(name, self._spec(ROLE_OF[kind], instances)) for name, instances, kind in planned]
        if not self._services:
            return specs
        if credentials.may_take(self.url, SERVICES):
            specs.append((SERVICES, self._spec(SERVICES, [])))
        else:
            log.warning("no password of the role services here: the services must run elsewhere")
        return specs

    def _spec(self, role: str, instances: list[Instance]) -> ProcessSpec:
        url = credentials.url_of_role(self.url, role)  # a process gets its own password and no other
        return ProcessSpec(url, role, instances, role == SERVICES, self._log_level, self._drain_s, self._variables)


class Child:
    """One worker process, kept alive."""

    def __init__(self, name: str, spec: ProcessSpec, log_file: Path | None, environments: Path) -> None:
        """Prepare a worker process; it is not started yet.

        Args:
            log_file: file for its log; None: this process's stderr.
            environments: folder for the Python environments of workers that have their own.
        """
        self.name = name
        self.spec = spec
        self.restarts = 0
        self.serves = False
        self.process: spawner.Spawned | None = None
        self._log_file = log_file
        self._log = log_file or "its log above"
        self._environments = environments
        self._python = sys.executable
        self._watching: asyncio.Task[None] | None = None
        self._log_began = 0  # where in the file the process's own part begins
        self._refused: dict[str, str] = {}

    async def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            LaunchError: it says why it cannot, dies, or is not ready in time.
        """
        for instance in self.spec.instances:
            if isolated := instance.options.get("isolated"):
                packages = isolated if isinstance(isolated, list) else []
                try:
                    self._python = await python_for(
                        instance.kind, instance.implementation, self._environments, packages
                    )
                except CannotIsolate as error:
                    raise LaunchError(f"{self.name}: {error}") from None
        await self._spawn()
        self._watching = asyncio.create_task(keep_running(self._label(), self._ended, self._restart))

    async def _spawn(self) -> None:
        context = StartContext(os.getcwd(), self._environment(), self._refused)
        self._log_began = 0 if self._log_file is None or not self._log_file.exists() else self._log_file.stat().st_size
        with contextlib.nullcontext(STDERR) if self._log_file is None else _opened(self._log_file) as log_to:
            try:
                process = self.process = await spawner.spawn(self._python, log_to)
            except spawner.CannotFork:
                raise LaunchError(f"{self.name}: its process cannot be started; see {self._log}") from None
        try:
            await process.ask(context, self.spec)
            answer = await self._answer(process)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if answer != READY:
            await _end(process, patience_s=ENDS_BY_ITSELF_S)
            raise LaunchError(f"{self.name}: {answer or f'it did not become ready; see {self._log}'}")
        self.serves = True

    def _environment(self) -> dict[str, str]:
        asked = [name for instance in self.spec.instances for name in instance.options.get("pass_env") or ()]
        try:
            return passed(self.spec.role, os.environ, asked)
        except LookupError as error:
            raise LaunchError(f"{self.name}: {error.args[0]}") from None

    async def _answer(self, process: spawner.Spawned) -> str:
        """Return a process's answer to its spec; empty if it ends without one."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + READY_S
        while loop.time() < give_up:
            try:
                async with asyncio.timeout(STILL_STARTING_S):
                    return await process.answer()
            except TimeoutError:
                log.warning("%s is still starting; see %s", self.name, self._log)
        return ""

    def _label(self) -> str:
        names = [instance.name for instance in self.spec.instances]
        return f"{self.name} ({', '.join(names)})" if names not in ([], [self.name]) else self.name

    async def _ended(self) -> str:
        """Wait until the process ends; return how it did, and remember a call that is to blame."""
        process = self.process
        assert process is not None
        how = shown_status(await process.wait())
        self.serves = False
        if process.blocked_at is not None:
            how = f"{how}, because its event loop was blocked at {process.blocked_at}"
        tail = "" if self._log_file is None else _tail(self._log_file, self._log_began)
        log_tail = f"; the last lines of its log:\n{textwrap.indent(tail, '  ')}" if tail else ""
        if len(process.suspects) != 1:
            return how + log_tail
        (call,) = process.suspects
        times = call.num_lost + 1
        place = RolloutId.parse(call.rollout)
        of = call.rollout if place is None else f"task {place[1]}, rollout {place[2]} of run {place[0]}"
        ended = f"its process ended {times} times during a call for {of}, at last with {how}"
        self._refused[call.rollout] = redact(f"{call.instance}: {ended}{log_tail}")
        while len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        return f"{how}; a call of {call.instance} for {of} has ended it {times} times and is refused{log_tail}"

    async def _restart(self) -> None:
        await self._spawn()
        self.restarts += 1

    async def stop(self) -> None:
        """Let it drain; kill it when it takes too long."""
        if self._watching is not None:
            self._watching.cancel()
        self.serves = False
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        await _end(self.process, patience_s=self.spec.drain_s + 10.0)


async def _stop_child(child: WorkerProcess) -> None:
    """Stop a process; one that cannot be stopped must keep neither the others nor the server running."""
    try:
        await child.stop()
    except Exception:
        log.exception("%s did not stop cleanly", child.name)


async def keep_running(
    name: str,
    ended: Callable[[], Awaitable[str]],
    start: Callable[[], Awaitable[None]],
    *,
    stays_up_s: float = STAYS_UP_S,
) -> NoReturn:
    """Start a process again whenever it ends, after a pause that grows as long as it does not stay up.

    The log has a line for the first ends, and then for each that doubles their number, until it stays up.

    Args:
        ended: waits until the process ends; returns how it did.
        start: starts it and waits until it serves; may raise LaunchError, ServerError or, where the system lacks
            something at the moment (descriptors, processes, disk), OSError.
        stays_up_s: seconds after which it is taken to stay up, so that the pause is short again.
    """
    loop = asyncio.get_running_loop()
    pause_s = SHORTEST_PAUSE_S
    times = 0
    while True:
        started = loop.time()
        how = await ended()
        if loop.time() - started > stays_up_s:
            pause_s, times = SHORTEST_PAUSE_S, 0
        times += 1
        if times <= 3 or times & (times - 1) == 0:
            log.warning("%s ended%s, restarting it: %s", name, f" {times} times" if times > 1 else "", how)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                await start()
                break
            except (LaunchError, ServerError, OSError) as error:
                log.error("%s: %s", name, str(error).removeprefix(f"{name}: "))


def shown_status(status: int | None) -> str:
    """Return text such as `exit status 3` or `signal SIGSEGV`."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _tail(log_file: Path, start: int) -> str:
    """Return the last lines of a log, from a position on; of a crash those that begin its report."""
    try:
        with log_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, start if start <= size else 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [logs.shown(line) for line in lines]
    crash = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    shown = lines[-TAIL_LINES:] if crash is None else lines[crash : crash + TAIL_LINES]
    return "\n".join(line[:200] for line in shown if line.strip())


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    """Open a log to append to it. It holds parts of rows and replies: a new one is readable by its owner only."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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


async def _end(process: spawner.Spawned, *, patience_s: float) -> None:
    """Wait until a process has ended; kill it when it takes too long."""
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
