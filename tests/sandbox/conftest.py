"""Each isolation that this machine allows, with an interpreter that programs in it can read."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gymq.failures import ComponentFailed
from gymq.sandbox import Limits, LocalSandbox, Program, ProgramResult

RunPython = Callable[..., Awaitable[ProgramResult]]


@pytest.fixture(params=["namespaces", "bubblewrap", "process"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[LocalSandbox]:
    """A sandbox of each kind."""
    async for started in _started(request.param):
        yield started


# For tests that take long with the weakest isolation, which is for development only.
PROCESS_AT_NIGHT = pytest.mark.parametrize(
    "sandbox", ["namespaces", "bubblewrap", pytest.param("process", marks=pytest.mark.nightly)], indirect=True
)


@pytest.fixture(params=["namespaces", "bubblewrap"])
async def closed_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[LocalSandbox]:
    """A sandbox of each kind that hides the machine."""
    async for started in _started(request.param):
        yield started


_missing: dict[str, str] = {}  # isolations that did not start here, and why


async def _started(isolation: str) -> AsyncIterator[LocalSandbox]:
    if isolation in _missing:
        pytest.skip(_missing[isolation])
    options: dict[str, Any] = {}
    if isolation == "process" and os.geteuid() == 0:  # programs become a user who may not look into root's home
        options["python"] = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
    sandbox = LocalSandbox(isolation=isolation, **options)
    try:
        await sandbox.start()
    except ComponentFailed as error:
        pytest.skip(_missing.setdefault(isolation, error.message))
    try:
        yield sandbox
    finally:
        await sandbox.stop()


async def run_python(sandbox: LocalSandbox, code: str, limits: Limits | None = None, **program: Any) -> ProgramResult:
    argv = (sandbox.python, "-I", "-c", code)
    return await sandbox.run(Program(argv, **program), limits or Limits(time_s=60.0))


def alive(marker: str) -> list[int]:
    """Processes of the whole machine whose command line holds the marker."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if name.isdecimal() and int(name) != os.getpid() and marker.encode() in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found
