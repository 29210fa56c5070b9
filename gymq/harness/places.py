"""Places where an agent's program runs: what they have in common, and a process of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gymq.outcomes import ComponentFailed
from gymq.sandbox.interface import MIB
from gymq.sandbox.isolation import SUPERVISOR
from gymq.sandbox.output import read_bounded

OUTPUT_BYTES = 16 * MIB  # of what a program prints
GRACE_S = 30.0  # beyond a time limit that the place itself keeps, and to end a program
LOOPBACK = "127.0.0.1"
KILLED = -signal.SIGKILL

# -I and -S: neither the environment nor installed packages have a say, and it starts faster.
_BOOT = "import sys; sys.path.append(sys.argv[1]); from inside.keeper import main; main()"
_KEEPER = (sys.executable, "-I", "-S", "-c", _BOOT, str(SUPERVISOR.parent))


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_status: negative: the signal that ended it.
        limit: the limit that ended it.
    """

    exit_status: int
    stdout: bytes
    stderr: bytes
    limit: Literal["wall", "memory"] | None
    seconds: float

    @property
    def how(self) -> str:
        """For a sentence whose subject is the program."""
        return f"was ended by the limit of {self.limit}" if self.limit else f"ended with {self.exit_status}"

    @property
    def last_words(self) -> str:
        """The end of its errors or, if it told none, of its output."""
        return (self.stderr or self.stdout).decode(errors="replace").strip()[-300:]


class Place(ABC):
    """Where programs run one after the other and find each other's files; used with `async with`."""

    @abstractmethod
    async def __aenter__(self) -> Self:
        """
        Raises:
            ComponentFailed: there is no such place.
        """

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all that runs here, and remove its files."""

    @abstractmethod
    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        """Run a script of the shell.

        Args:
            wall_s: seconds after which it is ended.
            env: variables beside those of the place; on no command line, since they may be secret.

        Raises:
            ComponentFailed: it could not be run, or the place was lost.
        """

    async def gateway_host(self) -> str:
        """The address of this machine as programs of this place see it, for a gateway to listen on.

        Raises:
            ComponentFailed: there is no such place.
        """
        return LOOPBACK

    async def write(self, path: str, content: bytes) -> None:
        """Write a file; folders on the way are made.

        Raises:
            ComponentFailed: it cannot be written.
        """
        quoted = shlex.quote(path)
        ended = await self.run(f'mkdir -p "$(dirname {quoted})" && cat > {quoted}', wall_s=60.0, stdin=content)
        if ended.exit_status != 0:
            raise ComponentFailed(f"{path} cannot be written: {ended.stderr.decode(errors='replace').strip()[-300:]}")


class Process(Place):
    """A folder of its own on this machine, and processes of this user. No isolation: for programs that are trusted.

    A program is over when its first process is; what that left running is ended, also if this process dies.

    Args:
        env: variables of its programs; nothing else of this process's environment but PATH.
        memory_mib: of a program with all that it starts; needs Linux.
    """

    def __init__(self, env: Mapping[str, str] | None = None, *, memory_mib: int | None = None) -> None:
        self._env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})}
        self._memory_bytes = (memory_mib or 0) * MIB

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="gymq-harness-", ignore_cleanup_errors=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """The working directory of the programs."""
        return Path(self._folder.name)

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        variables = {**self._env, "HOME": self._folder.name, **(env or {})}
        ours, theirs = socket.socketpair()

        def end(_: asyncio.subprocess.Process) -> None:
            ours.send(b"end")

        with ours, theirs:
            words = [str(theirs.fileno()), str(self._memory_bytes), self._folder.name, "/bin/sh", "-c", script]
            place = {"cwd": self._folder.name, "pass_fds": (theirs.fileno(),)}
            ended = await _run([*_KEEPER, *words], end, wall_s=wall_s, env=variables, stdin=stdin, **place)
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                ours.recv(16)  # a keeper has nothing else to say
                ended = replace(ended, limit="memory")
        return ended


async def run_command(command: list[str], *, wall_s: float, env: Mapping[str, str], stdin: bytes = b"") -> Ended:
    """Run a command of this machine in a session of its own, which is gone afterwards.

    Raises:
        ComponentFailed: there is no such command, or it cannot be ended.
    """

    def end(process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    return await _run(command, end, wall_s=wall_s, env=env, stdin=stdin)


async def _run(
    command: list[str],
    end: Callable[[asyncio.subprocess.Process], None],
    *,
    wall_s: float,
    env: Mapping[str, str],
    stdin: bytes,
    **options: Any,
) -> Ended:
    pipe = asyncio.subprocess.PIPE
    given = pipe if stdin else asyncio.subprocess.DEVNULL
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=given, stdout=pipe, stderr=pipe, env=dict(env), start_new_session=True, **options
        )
    except OSError as error:
        raise ComponentFailed(f"{command[0]} cannot be run: {error.strerror}") from None
    assert process.stdout is not None
    assert process.stderr is not None
    # What is beyond the bound is read and forgotten: a program that prints much is not ended for it.
    reading = asyncio.gather(
        read_bounded(process.stdout, OUTPUT_BYTES, lambda: None),
        read_bounded(process.stderr, OUTPUT_BYTES, lambda: None),
        process.wait(),
        _feed(process.stdin, stdin),
    )
    in_time = True
    try:
        async with asyncio.timeout(wall_s):
            await asyncio.shield(reading)
    except TimeoutError:
        in_time = False
    finally:
        end(process)
        try:
            async with asyncio.timeout(GRACE_S):
                stdout, stderr, status, _ = await reading
        except TimeoutError:
            raise ComponentFailed(f"what {command[0]} started cannot be ended, and holds its output") from None
    return Ended(status, stdout, stderr, None if in_time else "wall", time.monotonic() - began)


async def _feed(writer: asyncio.StreamWriter | None, content: bytes) -> None:
    if writer is None:
        return
    # A program need not read what it is given. uvloop says RuntimeError of a pipe that was closed by the other end.
    with contextlib.suppress(ConnectionError, RuntimeError):
        writer.write(content)
        await writer.drain()
        writer.close()
