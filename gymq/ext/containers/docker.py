"""Containers of Docker, by the `docker` command (podman's takes the same arguments): a sandbox and a runtime."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import secrets
import socket
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self

from gymq.ext.containers.container import Container, engine_environment, engine_output
from gymq.failures import ComponentFailed
from gymq.processes.failing import OnFailureAwait
from gymq.sandbox import SandboxOptions
from gymq.sandbox.interface import LimitName, Limits, Program, ProgramResult, ProgramSession, Sandbox
from gymq.sandbox.process import finish_process, kill_group, start_process
from gymq.sandbox.stream_session import StreamSession

NETWORK = "gymq-harness-apart"
# Containers of this network reach this machine, but not each other.
_APART = ("--opt", "com.docker.network.bridge.enable_icc=false")
_NO_PRIVILEGES = ("--security-opt", "no-new-privileges", "--cap-drop", "ALL")
# Programs of agents are root in their containers: they install packages and give files away, and need no more.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
FEWER_PRIVILEGES = (*_NO_PRIVILEGES, *(word for name in _CAPABILITIES for word in ("--cap-add", name)))
_BOX = "/tmp/box"
_NOBODY = "65534:65534"
_OWNER = "gymq.owner"
# Files come as an archive in front of stdin. `timeout` ends a program whose worker died. A busy engine may miss that
# memory ended a program, so the shell looks at the counters of its control group (of version 2 or 1), and says so by a
# mark at the end of stderr. Its own messages, such as "Killed", go nowhere.
_BEGIN = (
    f'mkdir -p {_BOX} && cd {_BOX} && head -c "$1" | tar -xf - && seconds=$2 mark=$3 && shift 3 || exit\n'
    "exec 3>&2 2>/dev/null\n"
    '[ "$seconds" != 0 ] && command -v timeout > /dev/null && set -- timeout -s KILL "$seconds" "$@"\n'
    '(exec "$@" 2>&3 3>&-)\n'
    "status=$?\n"
    '[ "$status" = 137 ] || exit "$status"\n'
    "for counters in memory.events memory/memory.oom_control; do\n"
    "while read -r name count; do\n"
    '[ "$name" = oom_kill ] && [ "$count" != 0 ] && printf %s "$mark" >&3\n'
    'done < "/sys/fs/cgroup/$counters"\n'
    "done\n"
    'exit "$status"\n'
)


class DockerSandbox(Sandbox):
    """Programs in containers without network, privileges or a root directory that they can change.

    A program that names an image of its own may change what is in it, as the image's user; the changes end with it.
    Its time is that on the clock.

    Args:
        image: for programs that name none; it needs sh, tar and head.
        max_running: containers at a time; default: one per core. Sessions do not count.
        python: the interpreter in the image.
    """

    def __init__(self, image: str, max_running: int | None = None, python: str = "python3") -> None:
        self.python = python
        self._image = image
        self._slots = asyncio.Semaphore(max_running or os.cpu_count() or 1)
        self._containers: set[str] = set()

    @classmethod
    def from_options(cls, options: SandboxOptions) -> Self:
        """Return the sandbox that a worker's options name; it is not started.

        Raises:
            ValueError: it needs an image, or does not support one of the options.
        """
        if options.isolation is not None:
            raise ValueError("`isolation` is for the providers `local` and `ray`")
        if options.image is None:
            raise ValueError("the provider `docker` needs an `image`")
        return cls(options.image, options.max_running, options.python or "python3")

    async def start(self) -> None:
        await _docker("version", "--format", "{{.Server.Version}}")
        await self._remove_orphans()
        if not await _succeeds("image", "inspect", self._image):
            raise ComponentFailed(f"docker has no image {self._image!r}: pull or build it first")

    def describe(self) -> str:
        return f"docker: containers of {self._image}, without network and privileges, with limits"

    async def run(self, program: Program, limits: Limits) -> ProgramResult:
        async with self._slots:
            name = self._new_name()
            try:
                return await self._run(name, program, limits)
            finally:
                await self._remove(name)

    async def open(self, program: Program, limits: Limits) -> ProgramSession:
        name = self._new_name()
        async with OnFailureAwait(partial(self._remove, name)):
            process = await self._start(name, program, limits)
            assert process.stdin is not None
            process.stdin.write(_archive(program.files))
            return _DockerSession(self, name, process, limits)

    async def stop(self) -> None:
        await asyncio.gather(*(self._remove(name) for name in list(self._containers)))

    async def _run(self, name: str, program: Program, limits: Limits) -> ProgramResult:
        mark = secrets.token_bytes(16).hex().encode()
        process = await self._start(name, program, limits, mark)
        ended = await finish_process(
            process,
            lambda: kill_group(process),
            wall_s=None if limits.time_s is None else limits.time_s + 60.0,  # a container needs time to start
            stdin=_archive(program.files) + program.stdin,
            output_bytes=limits.output_bytes,
            output_ends=True,
        )
        if ended.limit == "time":
            raise ComponentFailed(f"the container {name} did not end in time")
        if ended.limit == "output":
            return ended
        state = await self._state(name, ended)
        exit_status = int(state["ExitCode"])
        # A shell says 128 + n of a program that was ended by the signal n.
        exit_status = 128 - exit_status if exit_status > 128 else exit_status
        if ended.stderr.endswith(mark):
            state["OOMKilled"] = True
            ended = replace(ended, stderr=ended.stderr.removesuffix(mark))
        return replace(ended, exit_status=exit_status, limit=_limit_of(state, limits, ended.seconds))

    async def _start(
        self, name: str, program: Program, limits: Limits, mark: bytes = b""
    ) -> asyncio.subprocess.Process:
        if program.folders:
            raise ComponentFailed("the provider `docker` does not support folders: put them into an image")
        self._containers.add(name)
        archive_size = str(len(_archive(program.files)))
        seconds = "0" if limits.time_s is None else f"{limits.time_s:.3f}"
        command = ["run", "-i", "--name", name, *_options(limits, program.image is not None)]
        command += ["--label", f"{_OWNER}={_owner()}", "--entrypoint", "sh", program.image or self._image]
        command += ["-c", _BEGIN, "sh", archive_size, seconds, mark.decode(), *program.argv]
        return await start_process(["docker", *command], env=engine_environment(), stdin=asyncio.subprocess.PIPE)

    async def _state(self, name: str, ended: ProgramResult) -> dict[str, Any]:
        """Return what the engine says of a container that ended."""
        try:
            state: dict[str, Any] = json.loads(await _docker("inspect", "--format", "{{json .State}}", name))
        except ComponentFailed:
            raise ComponentFailed(f"docker did not make a container: it {ended.report}") from None
        if state.get("Error") or state["StartedAt"].startswith("0001-"):
            raise ComponentFailed(f"docker did not start a container: {state.get('Error') or 'no reason given'}")
        return state

    def _new_name(self) -> str:
        return f"gymq-{secrets.token_hex(8)}"

    async def _remove(self, name: str) -> None:
        self._containers.discard(name)
        await asyncio.shield(_succeeds("rm", "--force", "--volumes", name))

    async def _remove_orphans(self) -> None:
        """Remove the containers of workers of this machine that no longer exist."""
        listed = await _docker(
            "ps", "--all", "--filter", f"label={_OWNER}", "--format", '{{.Names}} {{.Label "gymq.owner"}}'
        )
        for line in listed.splitlines():
            name, _, owner = line.partition(" ")
            host, _, pid = owner.partition(":")
            if host == socket.gethostname() and pid.isdecimal() and not _is_alive(int(pid)):
                await _succeeds("rm", "--force", name)


class _DockerSession(StreamSession):
    """A container that stays."""

    def __init__(self, owner: DockerSandbox, name: str, process: asyncio.subprocess.Process, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin, limits.output_bytes)
        self._owner = owner
        self._name = name
        self._process = process

    async def close(self) -> None:
        self._writer.close()
        await self._owner._remove(self._name)
        await self._process.communicate()


class Docker(Container):
    """A container of Docker.

    Args:
        network: the default has no way out, only this machine can be reached in it.
    """

    def __init__(self, image: str, *, network: str = NETWORK, **limits: Any) -> None:
        super().__init__(image, **limits)
        self._network = network

    async def run(
        self, script: str, *, wall_s: float, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProgramResult:
        names = [word for name in env or {} for word in ("--env", name)]
        command = ["docker", "exec", "--interactive", *names, self.name]
        ended = await self._run(command, script, wall_s, env or {}, stdin)
        if ended.exit_status != 0 and not await self._is_there():
            raise ComponentFailed(f"the container of {self.image} is gone")
        return ended

    async def gateway_host(self) -> str:
        return await network_address()

    def _start_command(self) -> list[str]:
        limits = ["--pids-limit", "1024", *FEWER_PRIVILEGES]
        if self._memory_mib is not None:
            limits += _memory_options(f"{self._memory_mib}m")
        for inside, outside in self._folders.items():
            limits += ["--volume", f"{outside}:{inside}:ro"]
        life = ["--rm", "--init", "--entrypoint", "sleep"]
        named = ["--name", self.name, "--network", self._network]
        return ["docker", "run", "--detach", *named, *limits, *life, self.image, f"{self._life_s:.0f}"]

    def _stop_command(self) -> list[str]:
        return ["docker", "rm", "--force", "--volumes", self.name]

    async def _is_there(self) -> bool:
        with contextlib.suppress(ComponentFailed):
            return await _docker("inspect", "--format", "{{.State.Running}}", self.name) == "true"
        return False


async def network_address() -> str:
    """Return the address of this machine in the isolated network of containers, for a gateway to listen on.

    The network is created if it does not exist.

    Raises:
        ComponentFailed: docker cannot be asked.
    """
    inspect = ("network", "inspect", NETWORK, "--format", "{{(index .IPAM.Config 0).Gateway}}")
    if not await _succeeds(*inspect):
        await _succeeds("network", "create", "--internal", *_APART, NETWORK)  # another process may be faster
    return await _docker(*inspect)


def _options(limits: Limits, writable: bool) -> list[str]:
    options = ["--network", "none", *_NO_PRIVILEGES, "--log-driver", "none"]
    options += _memory_options(str(limits.memory_bytes))
    options += ["--pids-limit", str(limits.processes), "--ulimit", f"fsize={limits.file_bytes}", "--ulimit", "core=0"]
    disk = f"size={limits.disk_bytes},nr_inodes={limits.disk_files}"
    options += ["--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777,{disk}"]
    options += ["--env", f"HOME={_BOX}", "--env", "LANG=C.UTF-8", "--env", "OMP_NUM_THREADS=1"]
    if not writable:
        options += ["--read-only", "--user", _NOBODY]
    return options


def _memory_options(memory: str) -> list[str]:
    return ["--memory", memory, "--memory-swap", memory]


def _limit_of(state: dict[str, Any], limits: Limits, seconds: float) -> LimitName | None:
    """Return the limit that ended a container.

    Args:
        seconds: how long it ran by the clock of this process. The engine notes its start late on a busy machine.
    """
    if state.get("OOMKilled"):
        return "memory"
    killed, over_file = 137, 153  # 128 + SIGKILL, SIGXFSZ
    if state["ExitCode"] == killed and limits.time_s is not None and seconds >= limits.time_s:
        return "time"
    return "file" if state["ExitCode"] == over_file else None


def _archive(files: Any) -> bytes:
    """Pack the files as a tar archive."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return body.getvalue()


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


async def _docker(*arguments: str) -> str:
    return await engine_output("docker", *arguments)


async def _succeeds(*arguments: str) -> bool:
    try:
        await _docker(*arguments)
    except ComponentFailed:
        return False
    return True
