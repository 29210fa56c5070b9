"""A process that runs a program in a `Subprocess` or another runtime, to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from .waiting import until

_OWNER = """
import asyncio
from {module} import {runtime}
async def main():
    async with {runtime}({arguments}) as place:
        await place.run({script!r}, wall_s=600.0)
asyncio.run(main())
"""


async def start_owner(
    folder: Path,
    before: str,
    words: str,
    arguments: str = "",
    runtime: str = "Subprocess",
    module: str = "gymq.sandbox",
) -> tuple[asyncio.subprocess.Process, list[str]]:
    """Start such a process, and wait until its program runs.

    Args:
        folder: for the file to which the program writes.
        before: commands of the program, before it waits.
        words: that it writes then, such as `$PWD`.
        arguments: of the runtime, as Python.
        module: that has the runtime.

    Returns:
        The process, and the words as the program's shell expanded them.
    """
    noted = folder / "noted"
    script = f"{before} echo {words} > {noted}.part; mv {noted}.part {noted}; sleep 600"
    code = _OWNER.format(script=script, arguments=arguments, runtime=runtime, module=module)
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await until(noted.exists)
    return owner, noted.read_text().split()
