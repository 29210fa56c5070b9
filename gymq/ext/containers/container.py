"""Containers in which an agent's programs run one after the other: their common part, and those of Apptainer."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from gymq.failures import ComponentFailed
from gymq.processes.background import end_task
from gymq.processes.failing import OnFailureAwait
from gymq.processes.passed_environment import passed
from gymq.sandbox.interface import ProgramResult
from gymq.sandbox.process import GRACE_S, finish_process, kill_group, run_command, start_process
from gymq.sandbox.workspace import Workspace

START_S = 3600.0  # an image may have to be pulled
COMMAND_S = 60.0
_KILLED = -signal.SIGKILL
_SHELL_KILLED = 128 + signal.SIGKILL  # what shells say of a program that SIGKILL ended
# When the process that started it is gone, what it writes is not read: SIGPIPE must not end it.
_KEEPER = """start_s=$1 life_s=$2
shift 2
timeout --foreground "$start_s" "$@" < /dev/null && {
    (trap '' PIPE; echo >&0)
    timeout --foreground "$life_s" cat > /dev/null
}
status=$?
apptainer instance stop "$0" > /dev/null 2>&1
exit $status
"""


class Container(Workspace):
    """Common part of the workspaces in containers.

    Args:
        image: name of the image for the engine.
        life_s: seconds after which the container ends by itself if it was abandoned.
        memory_mib: limit for all its programs together.
        folders: folders of this machine by their path in the container, mounted read-only.
    """

    def __init__(
        self,
        image: str,
        *,
        life_s: float,
        memory_mib: int | None = None,
        folders: Mapping[str, str] | None = None,
    ) -> None:
        self.image = image
        self.name = f"gymq-harness-{secrets.token_hex(6)}"
        self._life_s = life_s
        self._memory_mib = memory_mib
        self._folders = {inside: os.path.abspath(outside) for inside, outside in (folders or {}).items()}

    async def start(self) -> None:
        async with OnFailureAwait(self.stop):
            await engine_output(*self._start_command(), failure=f"no container of {self.image}: ", wall_s=START_S)

    async def stop(self) -> None:
        await asyncio.shield(run_command(self._stop_command(), wall_s=COMMAND_S, env=engine_environment()))

    @abstractmethod
    def _start_command(self) -> list[str]: ...

    @abstractmethod
    def _stop_command(self) -> list[str]: ...

    async def _run(
        self, command: list[str], script: str, wall_s: float, env: Mapping[str, str], stdin: bytes
    ) -> ProgramResult:
        """Run a script by a command that enters the container. `timeout` in there ends it with its children."""
        limited = ["timeout", "--signal=KILL", f"{wall_s:.3f}", "sh", "-c", script]
        variables = engine_environment() | dict(env)
        ended = await run_command([*command, *limited], wall_s=wall_s + GRACE_S, env=variables, stdin=stdin)
        if ended.exit_status not in (_SHELL_KILLED, _KILLED):
            return ended
        limit = ended.limit or ("time" if ended.seconds >= wall_s else "memory")
        return replace(ended, exit_status=_KILLED, limit=limit)


class Apptainer(Container):
    """An instance of Apptainer. It shares this machine's network.

    The shell that starts the instance also stops it: at `stop`, when this process ends, or after `life_s`.
    """

    async def start(self) -> None:
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        with theirs:
            command = ["sh", "-c", _KEEPER, self.name, f"{START_S:.0f}", f"{self._life_s:.3f}", *self._start_command()]
            keeper = await start_process(command, env=engine_environment(), stdin=theirs.fileno())
        self._ended = asyncio.create_task(finish_process(keeper, lambda: kill_group(keeper), wall_s=None))
        async with OnFailureAwait(self._give_up):
            if not await asyncio.get_running_loop().sock_recv(self._line, 1):
                raise ComponentFailed(f"no container of {self.image}: apptainer instance {(await self._ended).report}")

    async def _give_up(self) -> None:
        await end_task(self._ended)
        self._line.close()
        await super().stop()

    async def stop(self) -> None:
        self._line.close()
        await asyncio.wait([self._ended], timeout=COMMAND_S)
        self._ended.cancel()

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProgramResult:
        if self._memory_mib is not None:
            script = f"ulimit -v {self._memory_mib * 1024}; {script}"
        variables = {f"APPTAINERENV_{name}": value for name, value in (env or {}).items()}
        # `--cleanenv` of the instance does not count for what is run in it.
        command = ["apptainer", "exec", "--cleanenv", f"instance://{self.name}"]
        return await self._run(command, script, wall_s, variables, stdin)

    def _start_command(self) -> list[str]:
        folders = [f"{outside}:{inside}:ro" for inside, outside in self._folders.items()]
        binds = [word for folder in folders for word in ("--bind", folder)]
        isolation = ["--containall", "--cleanenv", "--writable-tmpfs"]
        return ["apptainer", "instance", "start", *isolation, *binds, self.image, self.name]

    def _stop_command(self) -> list[str]:
        return ["apptainer", "instance", "stop", self.name]


async def engine_output(*command: str, failure: str = "", wall_s: float = COMMAND_S) -> str:
    """Return what a command of an engine prints.

    Args:
        failure: beginning of the message if it fails.

    Raises:
        ComponentFailed: it failed; the message has its last words.
    """
    ended = await run_command(list(command), wall_s=wall_s, env=engine_environment())
    if ended.exit_status != 0:
        raise ComponentFailed(f"{failure}{command[0]} {command[1]} {ended.report}")
    return ended.stdout.decode().strip()


def engine_environment() -> dict[str, str]:
    """Return the environment of an engine's command: nothing of it is for the programs in a container."""
    return passed("resources", os.environ)
