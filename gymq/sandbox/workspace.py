"""Runtimes of trusted programs, such as those of agents: what they have in common, and processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import socket
from abc import abstractmethod
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gymq.failures import ComponentFailed
from gymq.processes.held_folder import HeldFolder
from gymq.sandbox.interface import MIB, ProgramResult, Runtime
from gymq.sandbox.isolation import command_inside
from gymq.sandbox.process import finish_process, start_process

LOOPBACK = "127.0.0.1"

log = logging.getLogger("gymq.sandbox")


class Workspace(Runtime):
    """A runtime for programs that are trusted: they run one after the other and share files."""

    @abstractmethod
    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProgramResult:
        """Run a script of the shell.

        Args:
            wall_s: seconds after which it is ended.
            env: variables beside those of the runtime; never on a command line, since they may be secret.

        Raises:
            ComponentFailed: it could not be run, or the runtime was lost.
        """

    async def gateway_host(self) -> str:
        """Return the address of this machine as programs in this runtime see it, for a gateway to listen on.

        Raises:
            ComponentFailed: the runtime is not available.
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


class Subprocess(Workspace):
    """A folder of its own on this machine, and processes of this user. No isolation: for programs that are trusted.

    A program is over when its first process is; what that left running is ended, also if this process dies.

    Args:
        env: variables of its programs; nothing else of this process's environment but PATH.
        memory_mib: limit for a program with all that it starts.
        name: what the path of the folder follows from, such as the id of a rollout: programs that put it into their
            prompts ask the same when they are run again. While another process has that folder, the path is a new
            one; as always without a name.
        resumes: whether an earlier process had the folder, and was lost: its programs are given 10 s to end.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        memory_mib: int | None = None,
        name: str | None = None,
        resumes: bool = False,
    ) -> None:
        self._name = name
        self._tries = 200 if resumes else 1
        self._env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})}
        self._memory_bytes = (memory_mib or 0) * MIB

    async def start(self) -> None:
        try:
            self._held = await self._take()
        except OSError as error:
            raise ComponentFailed(f"no folder for a program: {error}") from None

    async def stop(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._held.release))

    @property
    def folder(self) -> Path:
        """The working directory of the programs."""
        return Path(self._held.path)

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProgramResult:
        variables = {**self._env, "HOME": self._held.path, **(env or {})}
        ours, theirs = socket.socketpair()

        def end() -> None:
            ours.send(b"end")

        with ours, theirs:
            words = [str(theirs.fileno()), str(self._memory_bytes), script]
            process = await start_process(
                [*command_inside("keeper"), *words],
                env=variables,
                stdin=PIPE if stdin else DEVNULL,
                cwd=self._held.path,
                pass_fds=(theirs.fileno(), self._held.lock),
            )
            ended = await finish_process(process, end, wall_s=wall_s, stdin=stdin)
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                ours.recv(16)  # a keeper has nothing else to say
                ended = replace(ended, limit="memory")
        return ended

    async def _take(self) -> HeldFolder:
        for _ in range(self._tries):
            try:
                return HeldFolder.take(self._name)
            except FileExistsError as error:
                taken = error.filename
            await asyncio.sleep(0.05)
        held = HeldFolder.take()
        log.warning("%s is in use by another process; this attempt works in %s", taken, held.path)
        return held
