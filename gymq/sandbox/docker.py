"""Programs in containers, by the `docker` command (podman's takes the same arguments)."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import secrets
import socket
import tarfile
import time
from typing import Any

from gymq.sandbox.interface import Finished, LimitName, Limits, Program, Sandbox, SandboxFailed, Session
from gymq.sandbox.output import read_bounded
from gymq.sandbox.stream_session import StreamSession

_BOX = "/tmp/box"
_NOBODY = "65534:65534"
_OWNER = "gymq.owner"
_COMMAND_S = 60.0  # for a command of the engine
_START_S = 60.0  # for a container, beside its program's own time
# Files come as an archive in front of stdin. `timeout` ends a program whose worker died.
_BEGIN = (
    f'mkdir -p {_BOX} && cd {_BOX} && head -c "$1" | tar -xf - && seconds=$2 && shift 2 && '
    'if [ "$seconds" != 0 ] && command -v timeout > /dev/null; then exec timeout -s KILL "$seconds" "$@"; '
    'else exec "$@"; fi'
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

    async def start(self) -> None:
        await _docker("version", "--format", "{{.Server.Version}}")
        await self._remove_orphans()
        if await _status("image", "inspect", self._image) != 0:
            raise SandboxFailed(f"docker has no image {self._image!r}: pull or build it first")

    def describe(self) -> str:
        return f"docker: containers of {self._image}, without network and privileges, with limits"

    async def run(self, program: Program, limits: Limits) -> Finished:
        async with self._slots:
            name = self._new_name()
            try:
                return await self._run(name, program, limits)
            finally:
                await self._remove(name)

    async def open(self, program: Program, limits: Limits) -> Session:
        name = self._new_name()
        try:
            process = await self._start(name, program, limits)
            assert process.stdin is not None
            process.stdin.write(_archive(program.files))
            return _DockerSession(self, name, process, limits)
        except BaseException:
            await self._remove(name)
            raise

    async def stop(self) -> None:
        await asyncio.gather(*(self._remove(name) for name in list(self._containers)))

    async def _run(self, name: str, program: Program, limits: Limits) -> Finished:
        began = time.monotonic()
        process = await self._start(name, program, limits)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        cut: list[LimitName] = []

        def too_much() -> None:
            cut.append("output")
            kills.append(asyncio.ensure_future(_status("kill", name)))

        kills: list[asyncio.Future[int]] = []
        writing = asyncio.create_task(_write(process.stdin, _archive(program.files) + program.stdin))
        streams = (process.stdout, process.stderr)
        reading = asyncio.gather(*(read_bounded(stream, limits.output_bytes, too_much) for stream in streams))
        try:
            async with asyncio.timeout(None if limits.time_s is None else limits.time_s + _START_S):
                stdout, stderr = await reading
                await process.wait()
        except TimeoutError:
            raise SandboxFailed(f"the container {name} did not end in time") from None
        finally:
            writing.cancel()
            await asyncio.gather(writing, *kills, return_exceptions=True)
        state = await self._state(name, stderr)
        limit = cut[0] if cut else _limit_of(state, limits)
        exit_status = int(state["ExitCode"])
        # A shell says 128 + n of a program that was ended by the signal n.
        return Finished(
            128 - exit_status if exit_status > 128 else exit_status, stdout, stderr, limit, time.monotonic() - began
        )

    async def _start(self, name: str, program: Program, limits: Limits) -> asyncio.subprocess.Process:
        if program.folders:
            raise SandboxFailed("the provider `docker` takes no folders: put them into an image")
        self._containers.add(name)
        archive_size = str(len(_archive(program.files)))
        seconds = "0" if limits.time_s is None else f"{limits.time_s:.3f}"
        command = ["run", "-i", "--name", name, *_options(limits, program.image is not None)]
        command += ["--label", f"{_OWNER}={_owner()}", "--entrypoint", "sh", program.image or self._image]
        command += ["-c", _BEGIN, "sh", archive_size, seconds, *program.argv]
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec("docker", *command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise SandboxFailed(f"docker cannot be run: {error}") from None

    async def _state(self, name: str, stderr: bytes) -> dict[str, Any]:
        """What the engine says of a container that ended.

        Raises:
            SandboxFailed: it never ran.
        """
        try:
            state: dict[str, Any] = json.loads(await _docker("inspect", "--format", "{{json .State}}", name))
        except SandboxFailed:
            said = stderr.decode(errors="replace").strip()[-300:]
            raise SandboxFailed(f"docker did not make a container: {said}") from None
        if state.get("Error") or state["StartedAt"].startswith("0001-"):
            raise SandboxFailed(f"docker did not start a container: {state.get('Error') or 'no reason given'}")
        return state

    def _new_name(self) -> str:
        return f"gymq-{secrets.token_hex(8)}"

    async def _remove(self, name: str) -> None:
        self._containers.discard(name)
        await asyncio.shield(_status("rm", "--force", "--volumes", name))

    async def _remove_orphans(self) -> None:
        """Containers of workers of this machine that are no more."""
        listed = await _docker(
            "ps", "--all", "--filter", f"label={_OWNER}", "--format", '{{.Names}} {{.Label "gymq.owner"}}'
        )
        for line in listed.splitlines():
            name, _, owner = line.partition(" ")
            host, _, pid = owner.partition(":")
            if host == socket.gethostname() and pid.isdecimal() and not _is_alive(int(pid)):
                await _status("rm", "--force", name)


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


def _options(limits: Limits, writable: bool) -> list[str]:
    options = ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
    options += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
    options += ["--pids-limit", str(limits.processes), "--ulimit", f"fsize={limits.file_bytes}", "--ulimit", "core=0"]
    disk = f"size={limits.disk_bytes},nr_inodes={limits.disk_files}"
    options += ["--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777,{disk}"]
    options += ["--env", f"HOME={_BOX}", "--env", "LANG=C.UTF-8", "--env", "OMP_NUM_THREADS=1"]
    if not writable:
        options += ["--read-only", "--user", _NOBODY]
    return options


def _limit_of(state: dict[str, Any], limits: Limits) -> LimitName | None:
    if state.get("OOMKilled"):
        return "memory"
    killed, over_file = 137, 153  # 128 + SIGKILL, SIGXFSZ
    if state["ExitCode"] == killed and limits.time_s is not None and _seconds(state) >= limits.time_s:
        return "time"
    return "file" if state["ExitCode"] == over_file else None


def _seconds(state: dict[str, Any]) -> float:
    """How long a container ran, by the clock of the engine."""

    def moment(text: str) -> float:
        whole, _, fraction = text.removesuffix("Z").partition(".")
        return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")

    return moment(state["FinishedAt"]) - moment(state["StartedAt"])


def _archive(files: Any) -> bytes:
    """The files as a tar archive."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return body.getvalue()


async def _write(writer: asyncio.StreamWriter, content: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(content)
        await writer.drain()
        writer.close()


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
    """What a command of the engine prints.

    Raises:
        SandboxFailed: it failed; the text is the engine's.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            "docker", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(_COMMAND_S):
            stdout, stderr = await process.communicate()
    except OSError as error:
        raise SandboxFailed(f"docker cannot be run: {error}") from None
    except TimeoutError:
        process.kill()
        raise SandboxFailed("the docker engine does not answer") from None
    if process.returncode != 0:
        raise SandboxFailed(f"docker {arguments[0]}: {stderr.decode(errors='replace').strip()[-300:]}")
    return stdout.decode()


async def _status(*arguments: str) -> int:
    """0 if a command of the engine succeeds, otherwise 1."""
    try:
        await _docker(*arguments)
    except SandboxFailed:
        return 1
    return 0
