"""Programs on this machine, in namespaces where the kernel allows them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import marshal
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from io import FileIO
from typing import Any, cast

from gymq.failures import ComponentFailed, InvalidTask
from gymq.processes.held_folder import HeldFolder
from gymq.sandbox import visible
from gymq.sandbox.control_groups import ControlGroups
from gymq.sandbox.inside.supervisor import STEP
from gymq.sandbox.interface import (
    LimitName,
    Limits,
    Program,
    ProgramResult,
    ProgramSession,
    Sandbox,
    SessionEnded,
    clock_s,
)
from gymq.sandbox.isolation import Isolation, candidates, command_inside
from gymq.sandbox.process import finish_process, open_sealed, start_process
from gymq.sandbox.stream_session import StreamSession

log = logging.getLogger("gymq.sandbox")

_END_S = 10.0  # for the supervisor to end everything, after that it is killed
_BOX = "/tmp/box"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    # Threads of numerical libraries reserve much address space each.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_WHAT_HELPS = (
    "install bubblewrap or util-linux, or allow this user to create namespaces, or use the provider `docker` "
    "(docs/sandbox.md); on a machine with nothing else to protect, `isolation: process` needs neither"
)
_WORKS: set[tuple[Isolation, str]] = set()  # what was tried with success in this process, with the interpreter


class LocalSandbox(Sandbox):
    """Programs as processes of this machine.

    Args:
        max_running: programs at a time; default: one per core. Sessions do not count.
        isolation: what has to be active; default: the strongest that works here and hides the machine.
        python: the interpreter for programs; default: the one that runs this.
    """

    def __init__(
        self, max_running: int | None = None, isolation: str | None = None, python: str = sys.executable
    ) -> None:
        self.python = python
        self._slots = asyncio.Semaphore(max_running or os.cpu_count() or 1)
        self._wanted = isolation
        self._isolation: Isolation | None = None
        self._sessions: set[_LocalSession] = set()

    async def start(self) -> None:
        if self._isolation is not None:
            return
        if sys.platform != "linux":
            raise ComponentFailed("the local sandbox needs Linux: use the provider `docker`")
        await asyncio.to_thread(_control_groups)  # The first look may take more than a second.
        problems = []
        for isolation in candidates(self._wanted):
            known = (isolation, self.python) in _WORKS
            problem = None if known else await self._problem_of(isolation)
            if problem is None:
                self._isolation = isolation
                if not known:
                    _WORKS.add((isolation, self.python))
                    is_full = isolation.own_view and not self.weakness
                    log.log(logging.INFO if is_full else logging.WARNING, "sandbox: %s", self.describe())
                return
            problems.append(f"{isolation.name}: {problem}")
        wanted = self._wanted or "isolation"
        raise ComponentFailed(f"no {wanted} for programs on this machine ({'; '.join(problems)}); {_WHAT_HELPS}")

    def describe(self) -> str:
        isolation = self._ready
        user = "the same user" if isolation.user == "same" else "a user of its own"
        weaker = " (weaker)" if self.weakness else ""
        limits = self.weakness or "limits by control groups"
        return f"{isolation.name}{weaker}: {isolation.holds}; {limits}; runs as {user}"

    @property
    def weakness(self) -> str:
        groups = _groups_for(self._ready)
        if isinstance(groups, ControlGroups):
            return ""
        return (
            f"limits are not exact without control groups: {groups} (docs/sandbox.md#exact-limits says how to get them)"
        )

    async def run(self, program: Program, limits: Limits) -> ProgramResult:
        await self.start()
        async with self._slots:
            return await _run(self._ready, self.python, program, limits)

    async def open(self, program: Program, limits: Limits) -> ProgramSession:
        await self.start()
        supervised = await _Supervised.start(self._ready, self.python, program, limits, stdin=True)
        session = _LocalSession(supervised, limits, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def stop(self) -> None:
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    @property
    def _ready(self) -> Isolation:
        assert self._isolation is not None
        return self._isolation

    async def _problem_of(self, isolation: Isolation) -> str | None:
        """Return what is wrong with this isolation here, found by running a program in it."""
        try:
            finished = await _run(
                isolation, self.python, Program((self.python, "-I", "-c", "print(7)")), Limits(time_s=30.0)
            )
        except ComponentFailed as error:
            return error.message
        if finished.stdout.strip() != b"7":
            return f"a program did not run: {finished.stderr.decode(errors='replace').strip()[-200:]}"
        return None


async def _run(isolation: Isolation, python: str, program: Program, limits: Limits) -> ProgramResult:
    supervised = await _Supervised.start(isolation, python, program, limits)
    patience = None if limits.time_s is None else clock_s(limits.time_s) + _END_S
    try:
        ended = await finish_process(
            supervised.process, supervised.cut, wall_s=patience, output_bytes=limits.output_bytes, output_ends=True
        )
    finally:
        await supervised.end()
    if ended.limit == "time":
        raise ComponentFailed("a sandbox did not end its program in time")
    exit_status, limit, seconds = supervised.report(ended.stderr)
    return replace(ended, exit_status=exit_status, limit=ended.limit or limit, seconds=seconds)


class _Supervised:
    """One supervisor process with its program.

    Args:
        lifeline: the end of a pipe; the supervisor ends everything when it is closed.
        report: the end of a pipe on which the supervisor writes, at its end.
        taken: releases what the program was given: its control group and its folder.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, lifeline: FileIO, report: FileIO, taken: contextlib.ExitStack
    ) -> None:
        self.process = process
        self._lifeline = lifeline
        self._report = report
        self._taken = taken
        self._said = ""

    @classmethod
    async def start(
        cls, isolation: Isolation, python: str, program: Program, limits: Limits, stdin: bool = False
    ) -> _Supervised:
        """Start a supervisor and its program.

        Args:
            stdin: whether the program gets a pipe as stdin instead of its text.
        """
        taken = contextlib.ExitStack()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(_release, taken)
            with contextlib.ExitStack() as given:  # the ends that the supervisor gets; it has them once it is started
                try:
                    folder = None
                    if not isolation.own_view:
                        held = HeldFolder.take()
                        taken.callback(held.release)
                        folder = held.path
                    values = _spec(isolation, program, limits, folder, python)
                    counters = []
                    groups = _groups_for(isolation)
                    if isinstance(groups, ControlGroups):
                        group = groups.make(values["group_bytes"], limits.processes)
                        taken.callback(group.remove)
                        counters = group.open_files(given)
                    spec = open_sealed(given, marshal.dumps(values))
                    their_lifeline, our_lifeline = os.pipe()
                    given.callback(os.close, their_lifeline)
                    lifeline = taken.enter_context(FileIO(our_lifeline, "w"))
                    our_report, their_report = os.pipe()
                    given.callback(os.close, their_report)
                    report = taken.enter_context(FileIO(our_report))
                    fds = [spec, their_lifeline, their_report, *counters]
                    supervisor = [*command_inside("supervisor"), *map(str, fds)]
                    process = await start_process(
                        isolation.command(supervisor, program.folders, limits.disk_bytes),
                        env={},
                        stdin=asyncio.subprocess.PIPE if stdin else open_sealed(given, program.stdin),
                        stderr=asyncio.subprocess.DEVNULL if stdin else asyncio.subprocess.PIPE,
                        pass_fds=fds,
                        cwd="/",
                    )
                except OSError as error:
                    raise ComponentFailed(f"a sandbox could not be started: {error}") from None
            undo.pop_all()
        return cls(process, lifeline, report, taken)

    def report(self, stderr: bytes) -> tuple[int, LimitName | None, float]:
        """Return what the supervisor reported at its end: exit status, limit, seconds."""
        if self._said.startswith("failed "):
            raise ComponentFailed(f"a program could not be run: {self._said.removeprefix('failed ')}")
        if not self._said:
            said = stderr.decode(errors="replace").strip()[-300:] or "nothing"
            status = self.process.returncode
            raise ComponentFailed(f"a sandbox ended with status {status} and without a report; it said: {said}")
        exit_status, limit, seconds = self._said.split()
        return int(exit_status), None if limit == "-" else cast(LimitName, limit), float(seconds)

    def begin_step(self, time_s: float) -> None:
        """Let a session's program run for so many seconds of its own; with 0, stop it until the next step."""
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, or is to end
            self._lifeline.write(STEP.pack(time_s, clock_s(time_s)))

    def cut(self) -> None:
        """Close the lifeline: the supervisor ends everything."""
        self._lifeline.close()

    async def end(self) -> None:
        """End everything and release what was taken. Idempotent."""
        self.cut()
        try:
            async with asyncio.timeout(_END_S):
                await self.process.wait()
        except TimeoutError:
            log.error("a sandbox did not end its program; its supervisor is killed")
        finally:
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
            if not self._report.closed:
                os.set_blocking(self._report.fileno(), False)
                self._said = (self._report.read(65536) or b"").decode(errors="replace")
                self._report.close()
            await _release(self._taken)


async def _release(taken: contextlib.ExitStack) -> None:
    """Release what was taken beside the event loop: a control group may take seconds to be gone."""
    await asyncio.shield(asyncio.to_thread(taken.pop_all().close))


class _LocalSession(StreamSession):
    """A supervised program that stays, and is stopped while it has nothing to answer."""

    warns = True

    def __init__(self, supervised: _Supervised, limits: Limits, forget: Callable[[_LocalSession], None]) -> None:
        process = supervised.process
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin, limits.output_bytes)
        self._supervised = supervised
        self._forget = forget

    async def exchange(self, message: bytes, timeout_s: float) -> bytes:
        self._supervised.begin_step(timeout_s)
        try:
            answer = await super().exchange(message, clock_s(timeout_s) + _END_S)
        except TimeoutError:
            raise ComponentFailed("a sandbox did not end a step of its session in time") from None
        except SessionEnded:
            _, limit, _ = self._supervised.report(b"")
            if limit == "time":
                raise TimeoutError from None
            raise
        self._supervised.begin_step(0.0)
        return answer

    async def close(self) -> None:
        self._forget(self)
        self._writer.close()
        await self._supervised.end()


@functools.cache
def _control_groups() -> ControlGroups | str:
    """Return where this process makes groups for programs, or why it cannot."""
    try:
        return ControlGroups.found()
    except OSError as error:
        return str(error)


def _groups_for(isolation: Isolation) -> ControlGroups | str:
    if isolation.name == "process" and isolation.user == "same":
        return "a program of the same user could change its group"
    return _control_groups()


def _spec(isolation: Isolation, program: Program, limits: Limits, folder: str | None, python: str) -> dict[str, Any]:
    directory, path = folder or _BOX, f"{os.path.dirname(python)}:{_PATH}"
    if program.image is not None:
        raise ComponentFailed("the local sandbox has no container images: use the provider `docker`")
    for place in program.folders:
        if visible.covers(place):
            raise InvalidTask(f"a program's files: {place!r} belongs to the system; name another folder: /testbed")
    if program.folders and not isolation.own_view:
        raise ComponentFailed("folders for a program need namespaces")
    given = program.folders
    if isolation.name == "bubblewrap":
        given = {inside: f"/run/folders/{position}" for position, inside in enumerate(program.folders)}
    return {
        "argv": list(program.argv),
        "env": {**_ENVIRONMENT, "TMPDIR": folder or "/tmp", "HOME": directory, "PATH": path},
        "directory": directory,
        "files": dict(program.files),
        "folders": dict(given),
        "view": visible.view(),
        **asdict(limits),
        "group_bytes": limits.memory_bytes + (limits.disk_bytes if isolation.own_view else 0),
        "clock_s": None if limits.time_s is None else clock_s(limits.time_s),
        "builds_view": isolation.name == "namespaces",
        "own_view": isolation.own_view,
        "confines_files": isolation.confines_files,
        "changes_user": isolation.user == "own",
    }
