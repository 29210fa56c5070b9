"""One worker process on this machine, kept alive: started with its spec, watched, started again, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gymq.cluster import logs, spawner
from gymq.cluster.environments import python_for
from gymq.cluster.process_spec import READY, ProcessSpec, StartContext
from gymq.errors import UsageError
from gymq.processes.keeping import keep_running, shown_status
from gymq.processes.passed_environment import passed
from gymq.protocol.subjects import RolloutId
from gymq.redaction import redact

log = logging.getLogger("gymq.launch")


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
            UsageError: it says why it cannot, dies, or is not ready in time.
        """
        for instance in self.spec.instances:
            if isolated := instance.options.get("isolated"):
                packages = isolated if isinstance(isolated, list) else []
                try:
                    self._python = await python_for(
                        instance.kind, instance.implementation, self._environments, packages
                    )
                except UsageError as error:
                    raise UsageError(f"{self.name}: {error}") from None
        await self._spawn()
        self._watching = asyncio.create_task(keep_running(self._label(), self._ended, self._restart))

    async def _spawn(self) -> None:
        context = StartContext(os.getcwd(), self._environment(), self._refused)
        self._log_began = 0 if self._log_file is None or not self._log_file.exists() else self._log_file.stat().st_size
        # The descriptor of standard error: `sys.stderr` may be another object, as in a notebook.
        with contextlib.nullcontext(2) if self._log_file is None else _opened(self._log_file) as log_to:
            try:
                process = self.process = await spawner.spawn(self._python, log_to)
            except ChildProcessError:
                raise UsageError(f"{self.name}: its process cannot be started; see {self._log}") from None
        async with contextlib.AsyncExitStack() as if_it_fails:
            if_it_fails.push_async_callback(_end, process, patience_s=0.0)
            await process.ask(context, self.spec)
            answer = await self._answer(process)
            if_it_fails.pop_all()
        if answer != READY:
            await _end(process, patience_s=5.0)
            raise UsageError(f"{self.name}: {answer or f'it did not become ready; see {self._log}'}")
        self.serves = True
        self.spec.joins = True  # when it starts again

    def _environment(self) -> dict[str, str]:
        asked = [name for instance in self.spec.instances for name in instance.options.get("pass_env") or ()]
        try:
            return passed(self.spec.role, os.environ, asked)
        except LookupError as error:
            raise UsageError(f"{self.name}: {error.args[0]}") from None

    async def _answer(self, process: spawner.Spawned) -> str:
        """Return a process's answer to its spec; empty if it ends without one."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + 1800.0  # A model may take its time to load.
        while loop.time() < give_up:
            try:
                async with asyncio.timeout(30.0):
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
        while len(self._refused) > 100:
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


def _tail(log_file: Path, start: int) -> str:
    """Return the last lines of a log, from a position on; of a crash those that begin its report."""
    try:
        with log_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - (16 << 10), start if start <= size else 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [logs.shown(line) for line in lines]
    crash = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    shown = lines[-5:] if crash is None else lines[crash : crash + 5]
    return "\n".join(line[:200] for line in shown if line.strip())


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    """Open a log to append to it. It holds parts of rows and replies: a new one is readable by its owner only."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _end(process: spawner.Spawned, *, patience_s: float) -> None:
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
