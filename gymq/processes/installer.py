"""Installers of packages, such as pip and npm, run to their end, or to that of the process that needs the packages."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gymq.errors import UsageError
from gymq.processes import parent_death
from gymq.redaction import redact

T = TypeVar("T")

_WARNINGS = ("warning", "npm warn")


async def in_thread(make: Callable[..., T], *args: Any) -> T:
    """Return the result of `make(*args, cancelled)`, called in a thread.

    The last argument is an event for `install` and `alone`. It is set when this is cancelled: a process waits for its
    threads before it ends.
    """
    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(make, *args, cancelled)
    except asyncio.CancelledError:
        cancelled.set()
        raise


@contextlib.contextmanager
def alone(place: Path, cancelled: threading.Event) -> Iterator[None]:
    """Hold the lock of a folder, which is made once: several processes may need it at the same time.

    Raises:
        UsageError: cancelled.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if cancelled.wait(0.1):
                    raise UsageError(f"the wait for {place.name} was cancelled") from None
        yield


def install(
    command: Sequence[str],
    *,
    shown: str,
    timeout_s: float,
    cancelled: threading.Event,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run an installer of packages.

    Args:
        command: path of the installer, and its arguments.
        shown: the command as errors show it, such as `pip install regex`.
        timeout_s: limit on its run, in seconds.
        cancelled: set to end it.
        variables: environment variables in addition to those of this process.

    Raises:
        UsageError: it failed, took too long, or was cancelled.
    """
    env = {**os.environ, **(variables or {})}
    give_up = time.monotonic() + timeout_s
    # A session of its own: pip and npm have processes of their own, which end with it.
    process = subprocess.Popen(
        parent_death.bound(command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=env,
        start_new_session=True,
    )
    while True:
        try:
            _, said = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            is_cancelled = cancelled.is_set()
            if not is_cancelled and time.monotonic() < give_up:
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            ended = "was cancelled" if is_cancelled else f"did not finish within {timeout_s:g} s"
            raise UsageError(f"`{shown}` {ended}") from None
    if process.returncode != 0:
        lines = said.strip().splitlines()[-5:]
        errors = [line for line in lines if not line.lower().startswith(_WARNINGS)] or lines
        raise UsageError(redact(f"`{shown}` failed: {' '.join(' '.join(errors).split())}"))
