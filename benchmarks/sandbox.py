"""What a sandbox costs: milliseconds for a run, runs a second, and milliseconds for a step of a session.

python -m benchmarks.sandbox
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from gymq.failures import ComponentFailed
from gymq.sandbox import Limits, LocalSandbox, Program, PythonSession

RUNS = 40
STEPS = 300
LIMITS = Limits(time_s=60.0)


async def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {RUNS} runs, {STEPS} steps")
    await _show("an interpreter without a sandbox", _plain)
    for isolation in ("namespaces", "bubblewrap", "process"):
        sandbox = LocalSandbox(isolation=isolation)
        try:
            await sandbox.start()
        except ComponentFailed as error:
            print(f"{isolation}: not here: {error.message}")
            continue
        await _show(f"{isolation}, true", lambda sandbox=sandbox: sandbox.run(Program(("true",)), LIMITS))
        python = Program((sandbox.python, "-I", "-c", "pass"))
        await _show(f"{isolation}, an interpreter", lambda sandbox=sandbox, python=python: sandbox.run(python, LIMITS))
        await _show_session(isolation, sandbox)
        await sandbox.stop()


async def _plain() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", "pass")
    await process.wait()


async def _show(what: str, run: Callable[[], Awaitable[object]]) -> None:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        await run()
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(RUNS)))
    rate = RUNS / (time.perf_counter() - began)
    print(f"{what}: {statistics.median(times) * 1000:.0f} ms one after the other, {rate:.0f}/s at once")


async def _show_session(isolation: str, sandbox: LocalSandbox) -> None:
    session = PythonSession(sandbox, LIMITS)
    began = time.perf_counter()
    await session.run("n = 0", 60)
    opened = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(STEPS):
        await session.run("n += 1", 60)
    step = (time.perf_counter() - began) / STEPS
    await session.close()
    print(f"{isolation}, a session: {opened * 1000:.0f} ms to open, {step * 1000:.2f} ms for a step")


if __name__ == "__main__":
    asyncio.run(main())
