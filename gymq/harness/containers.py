"""Containers as places for an agent's program: Docker's, and Apptainer's where there is no Docker."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from gymq.harness.places import GRACE_S, KILLED, Ended, Place, run_command
from gymq.outcomes import ComponentFailed
from gymq.passed_environment import passed

NETWORK = "gymq-harness-apart"
# Containers of this network reach this machine, but not each other.
_APART = ("--opt", "com.docker.network.bridge.enable_icc=false")
# Programs in containers are root there: they install packages and give files away, and need no more.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
FEWER_PRIVILEGES = (
    *("--security-opt", "no-new-privileges", "--cap-drop", "ALL"),
    *(word for name in _CAPABILITIES for word in ("--cap-add", name)),
)
START_S = 3600.0  # an image may have to be pulled
COMMAND_S = 60.0
_SHELL_KILLED = 137  # what shells say of a program that SIGKILL ended


async def network_address() -> str:
    """The address of this machine in the network of containers that has no way out, for a gateway to listen on.

    The network is made if there is none.

    Raises:
        ComponentFailed: docker cannot be asked.
    """
    command = ["docker", "network", "inspect", NETWORK, "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    found = await _command(command)
    if found.exit_status != 0:
        await _command(["docker", "network", "create", "--internal", *_APART, NETWORK])  # another process may be faster
        found = await _command(command)
    return _said(found, f"docker has no network {NETWORK}")


class _Container(Place):
    """What containers have in common.

    Args:
        image: as the engine names it.
        life_s: seconds after which it ends by itself, should nobody be there to end it.
        memory_mib: of all its programs together.
        folders: folders of this machine by the path at which they are seen, for reading only.
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.shield(self._remove())

    async def _remove(self) -> None:
        raise NotImplementedError

    async def _start(self, command: list[str]) -> None:
        try:
            _said(await _command(command, START_S), f"no container of {self.image}")
        except BaseException:
            await asyncio.shield(self._remove())
            raise

    async def _run(self, command: list[str], script: str, wall_s: float, env: Mapping[str, str], stdin: bytes) -> Ended:
        """Run a script by a command that enters the container. `timeout` in there ends it with its children."""
        limited = ["timeout", "--signal=KILL", f"{wall_s:.3f}", "sh", "-c", script]
        variables = _of_the_engine() | dict(env)
        ended = await run_command([*command, *limited], wall_s=wall_s + GRACE_S, env=variables, stdin=stdin)
        killed = ended.exit_status in (_SHELL_KILLED, KILLED)
        limit = ended.limit
        if killed and limit is None:
            limit = "wall" if ended.seconds >= wall_s else "memory"
        return Ended(KILLED if killed else ended.exit_status, ended.stdout, ended.stderr, limit, ended.seconds)


class Docker(_Container):
    """A container of Docker.

    Args:
        network: the default has no way out, only this machine can be reached in it.
    """

    def __init__(self, image: str, *, network: str = NETWORK, **limits: Any) -> None:
        super().__init__(image, **limits)
        self._network = network

    async def __aenter__(self) -> Self:
        limits = ["--pids-limit", "1024", *FEWER_PRIVILEGES]
        if self._memory_mib is not None:
            limits += ["--memory", f"{self._memory_mib}m", "--memory-swap", f"{self._memory_mib}m"]
        for inside, outside in self._folders.items():
            limits += ["--volume", f"{outside}:{inside}:ro"]
        life = ["--rm", "--init", "--entrypoint", "sleep"]
        named = ["--name", self.name, "--network", self._network]
        program = [self.image, f"{self._life_s:.0f}"]
        await self._start(["docker", "run", "--detach", *named, *limits, *life, *program])
        return self

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        names = [word for name in env or {} for word in ("--env", name)]
        command = ["docker", "exec", "--interactive", *names, self.name]
        ended = await self._run(command, script, wall_s, env or {}, stdin)
        if ended.exit_status != 0 and not await self._is_there():
            raise ComponentFailed(f"the container of {self.image} is gone")
        return ended

    async def gateway_host(self) -> str:
        return await network_address()

    async def _is_there(self) -> bool:
        found = await _command(["docker", "inspect", "--format", "{{.State.Running}}", self.name])
        return found.stdout.strip() == b"true"

    async def _remove(self) -> None:
        await _command(["docker", "rm", "--force", "--volumes", self.name])


class Apptainer(_Container):
    """An instance of Apptainer. It shares this machine's network, and ends with the instance, not by itself."""

    async def __aenter__(self) -> Self:
        folders = [f"{outside}:{inside}:ro" for inside, outside in self._folders.items()]
        binds = [word for folder in folders for word in ("--bind", folder)]
        isolation = ["--containall", "--cleanenv", "--writable-tmpfs"]
        await self._start(["apptainer", "instance", "start", *isolation, *binds, self.image, self.name])
        return self

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        if self._memory_mib is not None:
            script = f"ulimit -v {self._memory_mib * 1024}; {script}"
        variables = {f"APPTAINERENV_{name}": value for name, value in (env or {}).items()}
        # `--cleanenv` of the instance does not count for what is run in it.
        command = ["apptainer", "exec", "--cleanenv", f"instance://{self.name}"]
        return await self._run(command, script, wall_s, variables, stdin)

    async def _remove(self) -> None:
        await _command(["apptainer", "instance", "stop", self.name])


async def _command(command: list[str], wall_s: float = COMMAND_S) -> Ended:
    return await run_command(command, wall_s=wall_s, env=_of_the_engine())


def _of_the_engine() -> dict[str, str]:
    """Return the environment of an engine's command: nothing of it is for the programs in a container."""
    return passed("agent", os.environ)


def _said(ended: Ended, otherwise: str) -> str:
    """What a command printed.

    Raises:
        ComponentFailed: it failed.
    """
    if ended.exit_status != 0:
        raise ComponentFailed(f"{otherwise}: {ended.stderr.decode(errors='replace').strip()[-300:]}")
    return ended.stdout.decode().strip()
