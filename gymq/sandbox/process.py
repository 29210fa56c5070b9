"""Starting a process, reading what it prints up to a bound, and ending it with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gymq.failures import ComponentFailed
from gymq.sandbox.interface import MIB, LimitName, ProgramResult

GRACE_S = 30.0  # for a process to be gone after it was ended


def open_sealed(stack: contextlib.ExitStack, content: bytes) -> int:
    """Open an unnamed file that holds the content, for reading. Its owner cannot write in it either.

    Args:
        stack: closes it.
    """
    fd = os.memfd_create("gymq", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, fd)
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


async def start_process(
    command: list[str], *, env: Mapping[str, str], stdin: int = DEVNULL, stderr: int = PIPE, **options: Any
) -> Process:
    """Start a command in a session of its own, with a pipe as stdout.

    A start that is cancelled is finished first, and its caller cancelled where it waits next: asyncio alone would wait
    for the end of all that has the pipes, and only the caller can end that.

    Raises:
        ComponentFailed: it cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=PIPE, stderr=stderr, env=dict(env), start_new_session=True, **options
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError as cancelled:
        await asyncio.wait([starting])
        if starting.exception() is not None:
            raise
        caller = asyncio.current_task()
        assert caller is not None
        caller.uncancel()
        caller.cancel(*cancelled.args)
        return starting.result()
    except OSError as error:
        raise ComponentFailed(f"{command[0]} cannot be run: {error.strerror}") from None


async def finish_process(
    process: Process,
    end: Callable[[], None],
    *,
    wall_s: float | None,
    stdin: bytes = b"",
    output_bytes: int = 16 * MIB,
    output_ends: bool = False,
) -> ProgramResult:
    """Write to a process and read from it until it is gone.

    Args:
        end: ends it with all that it started; called in any case, maybe more than once.
        wall_s: seconds after which it is ended; None: no limit.
        stdin: written if it has a pipe as stdin.
        output_bytes: how much of stdout and of stderr is kept.
        output_ends: whether it is ended when it prints more, instead of the rest being dropped.

    Raises:
        ComponentFailed: what it started holds its output and cannot be ended.
    """
    began = time.monotonic()
    limit: LimitName | None = None

    def too_much() -> None:
        nonlocal limit
        if output_ends:
            limit = "output"
            end()

    assert process.stdout is not None
    assert process.stderr is not None
    reading = asyncio.gather(
        _read(process.stdout, output_bytes, too_much),
        _read(process.stderr, output_bytes, too_much),
        process.wait(),
        _write(process.stdin, stdin),
    )
    try:
        async with asyncio.timeout(wall_s):
            await asyncio.shield(reading)
    except TimeoutError:
        limit = limit or "time"
    finally:
        end()
        try:
            async with asyncio.timeout(GRACE_S):
                stdout, stderr, status, _ = await reading
        except TimeoutError:
            raise ComponentFailed("what a program started cannot be ended, and holds its output") from None
    return ProgramResult(status, stdout, stderr, limit, time.monotonic() - began)


def kill_group(process: Process) -> None:
    """Kill a process of `start_process` and those of its session that stayed in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def run_command(
    command: list[str],
    *,
    wall_s: float = 60.0,
    env: Mapping[str, str],
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> ProgramResult:
    """Run a command of this machine in a session of its own, which is gone afterwards.

    Raises:
        ComponentFailed: there is no such command, or it cannot be ended.
    """
    process = await start_process(command, env=env, stdin=PIPE if stdin else DEVNULL, cwd=cwd)
    return await finish_process(process, lambda: kill_group(process), wall_s=wall_s, stdin=stdin)


async def _read(stream: asyncio.StreamReader, limit: int, too_much: Callable[[], None]) -> bytes:
    """Read a stream up to its end; call `too_much` at the limit, and drop the rest."""
    kept = bytearray()
    is_full = False
    while part := await stream.read(65536):
        if not is_full and len(kept) + len(part) > limit:
            is_full = True
            too_much()
        if len(kept) < limit:
            kept += part[: limit - len(kept)]
    return bytes(kept)


async def _write(writer: asyncio.StreamWriter | None, content: bytes) -> None:
    if writer is None:
        return
    # A program need not read what it is given. uvloop raises RuntimeError for a pipe that the other end closed.
    with contextlib.suppress(ConnectionError, RuntimeError):
        writer.write(content)
        await writer.drain()
        writer.close()
