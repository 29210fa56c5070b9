"""One chaos run: a cluster, a collector restarted until it is done, injected faults, and what was left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil

from gymq.bus import Bus
from gymq.bus.jetstream import JetStream
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster, Deployment
from gymq.cluster.server.store import Store
from gymq.data.run_files import RunFiles
from gymq.execution.services.profiler import read_profile
from gymq.protocol import subjects
from gymq.protocol.messages import Outcome, VerifiedRollout

from .fault_injector import Fault, FaultInjector
from .scenario import Scenario, instances

ACK_WAIT_S = 4.0
WINDOW = 96  # rollouts in flight
# Of rollouts of the usual number of turns; with more, all three grow.
FAULT_EVERY_S = 1.0
ROLLOUT_TIMEOUT_S = 120.0
DEADLINE_S = 840.0  # of a whole run; beyond it something is wedged
FAILURES_LEFT = 3  # the collector's exit status when rollouts failed; giving the command again tries them again
MOST_TRIES = 4
PROFILE_S = 60.0  # the profiler may have been killed a moment ago

Key = tuple[int, int]  # task, rollout


@dataclass
class Remains:
    """All that a run left: streams, files, and the logs of model and tools."""

    seconds: float
    faults: list[Fault]
    outcomes: list[Outcome]  # every one that is stored
    rewards: list[tuple[Key, float]]  # every line of the output file
    failures: list[tuple[Key, str]]  # every line of the failures file: the rollout, class and stage
    collector_exits: Counter[int]
    collector_said: str
    queued: int
    profiled: int  # rewarded rollouts by the live profile
    calls: list[Call]
    tools: Counter[str]  # "session turn": times executed
    started: int  # worker processes
    worker_logs: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True)
class Call:
    """One model call."""

    rollout: Key
    attempt: int
    turn: int
    begin: float  # Unix time, seconds


class Releases:
    """Releases of gymq that are installed in turn."""

    def __init__(self, *folders: Path | None) -> None:
        """Prepare to install the releases in these folders; None: this checkout."""
        self._folders = itertools.cycle(folders)

    def install_next(self) -> None:
        """Have what this process starts from now on be of the next release."""
        folder = next(self._folders)
        if folder is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = str(folder)


class Injector(Protocol):
    """What is done to a running cluster."""

    faults: list[Fault]

    async def run(self) -> None:
        """Do it until it is done, or cancelled."""
        ...


async def run(
    scenario: Scenario,
    folder: Path,
    *,
    injector: Injector | None = None,
    url: str | None = None,
    replicas: int = 1,
    ack_wait_s: float = ACK_WAIT_S,
    install: Callable[[], object] = lambda: None,
) -> Remains:
    """Collect the scenario's rows while faults are injected.

    Args:
        injector: by default a `FaultInjector`.
        url: of NATS servers; by default the embedded one.
        replicas: of streams.
        install: called before the cluster starts, and before what a `FaultInjector` has killed is replaced.

    Raises:
        TimeoutError: it did not end within `DEADLINE_S`, times the slowness of the scenario.
    """
    log = folder / "effects"
    log.mkdir(parents=True)
    rows, output = folder / "rows.jsonl", folder / "rollouts.jsonl"
    scenario.write(rows)
    cluster = Cluster(
        instances(log, scenario.layout),
        folder=folder,
        deployment=Deployment(url, replicas),
        ack_wait_s=ack_wait_s,
        drain_s=5.0,
        layout=scenario.layout,
    )
    install()
    async with cluster:
        timeout_s = ROLLOUT_TIMEOUT_S * scenario.slowness
        collector = Collector(cluster.url, rows, output, folder / "collector.log", timeout_s)
        injector = injector or FaultInjector(
            scenario.seed,
            lambda role: _pids(role, cluster, collector, folder),
            FAULT_EVERY_S * scenario.slowness,
            install,
        )
        started = time.monotonic()
        async with asyncio.timeout(DEADLINE_S * scenario.slowness), done(injector):
            await collector.run()
        seconds = time.monotonic() - started
        manifest = RunFiles(output).read_manifest()
        assert manifest is not None
        bus = await Bus.connect(cluster.url, role="test", name="chaos")
        js = bus.js
        outcomes = [outcome async for _, outcome in OutcomeStore(bus).read(manifest.run)]
        queued = await _queued(js, manifest.run, 2 * ack_wait_s)
        profiled = await _profiled(js, manifest.run, sum(isinstance(outcome, VerifiedRollout) for outcome in outcomes))
        await bus.close()
    return Remains(
        seconds=seconds,
        faults=injector.faults,
        outcomes=outcomes,
        rewards=[_reward(line) for line in output.read_bytes().splitlines()],
        failures=[_failure(line) for line in RunFiles(output).failures.read_bytes().splitlines()],
        collector_exits=collector.exits,
        collector_said=collector.log.read_text(),
        queued=queued,
        profiled=profiled,
        calls=_calls(log),
        tools=Counter(
            line for path in log.glob("tools-*") for line in path.read_text().splitlines() if line.count(" ") == 1
        ),
        started=sum(child.restarts + 1 for child in cluster.children if isinstance(child, Child)),
        worker_logs=_worker_logs(folder / "logs"),
    )


class NoFaults:
    """Leaves everything alone."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    async def run(self) -> None:
        return


@asynccontextmanager
async def done(injector: Injector) -> AsyncIterator[None]:
    working = asyncio.create_task(injector.run())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait([working])
    if not working.cancelled():
        working.result()


class Collector:
    """`gymq collect` in a process, given again whenever it ends before every rollout has a reward."""

    def __init__(self, url: str, rows: Path, output: Path, log: Path, timeout_s: float) -> None:
        self.log = log
        self.exits: Counter[int] = Counter()
        self._command = [
            sys.executable,
            "-c",
            "from gymq.cli import main; main()",
            "collect",
            f"--rows={rows}",
            f"--output={output}",
            "--num-repeats=4",
            f"--concurrency={WINDOW}",
            f"--timeout={timeout_s:g}",
            "--json",
            "--log-level=warning",
        ]
        self._url = url
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    async def run(self) -> None:
        """Until it ends with status 0, or says too often that it ended with failures."""
        try:
            with self.log.open("ab") as log:
                while True:
                    self._process = await asyncio.create_subprocess_exec(
                        *self._command, env=os.environ | {"GYMQ_NATS": self._url}, stdout=log, stderr=log
                    )
                    status = await self._process.wait()
                    self.exits[status] += 1
                    if status == 0 or self.exits[FAILURES_LEFT] == MOST_TRIES:
                        return
                    await asyncio.sleep(0.2)
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


def _pids(role: str, cluster: Cluster, collector: Collector, folder: Path) -> list[int]:
    if role == "collector":
        return [collector.pid] if collector.pid is not None else []
    if role == "nats":
        record = Store(folder / "jetstream").read_record()
        return [record.pid] if record is not None else []
    children = [child for child in cluster.children if isinstance(child, Child)]
    in_cells = role in ("agent", "model", "resources")
    wanted = [
        child.process
        for child in children
        if role in (child.spec.role, "fork server") or (in_cells and child.spec.role == "cell")
    ]
    alive = [process.pid for process in wanted if process is not None and process.returncode is None]
    return sorted({parent for pid in alive if (parent := _parent(pid)) is not None}) if role == "fork server" else alive


def _parent(pid: int) -> int | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).ppid()
    return None


async def _queued(js: JetStream, run: str, patience_s: float) -> int:
    """Tasks still queued. One whose outcome was acknowledged to a server that died then is delivered once more."""
    give_up = time.monotonic() + patience_s
    while True:
        found = sum((await js.count_by_subject("TASKS", subjects.TASK.of(run))).values())
        if not found or time.monotonic() > give_up:
            return found
        await asyncio.sleep(0.5)


async def _profiled(js: JetStream, run: str, wanted: int) -> int:
    """Rewarded rollouts in the live profile, once it is complete or has had its time."""
    give_up = time.monotonic() + PROFILE_S
    while True:
        profile = await read_profile(js, run)
        agents = {} if profile is None else profile.snapshot["agents"]
        found = sum(agent["rollouts"] for agent in agents.values())
        if found == wanted or time.monotonic() > give_up:
            return found
        await asyncio.sleep(0.2)


def _reward(line: bytes) -> tuple[Key, float]:
    row = msgspec.json.decode(line)
    return (row["_ng_task_index"], row["_ng_rollout_index"]), row["reward"]


def _failure(line: bytes) -> tuple[Key, str]:
    row = msgspec.json.decode(line)
    return (
        row["_ng_task_index"],
        row["_ng_rollout_index"],
    ), f"{row['_ng_failure_class']} at {row['_ng_failure_stage']}"


def _calls(log: Path) -> list[Call]:
    calls = []
    for path in log.glob("model-*"):
        for line in path.read_text().splitlines():
            session, turn, what, at = line.split()
            _, task, rollout, attempt = session.split("/")
            if what == "begin":
                calls.append(Call((int(task), int(rollout)), int(attempt), int(turn), float(at)))
    return sorted(calls, key=lambda call: call.begin)


def _worker_logs(folder: Path) -> list[dict[str, Any]]:
    """What the workers logged; lines that are no JSON as `{"message": …, "level": "raw"}`."""
    entries = []
    for path in sorted(folder.glob("*.log")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                entries.append({"process": path.stem, **json.loads(line)})
            except ValueError:
                entries.append({"process": path.stem, "level": "raw", "message": line})
    return entries
