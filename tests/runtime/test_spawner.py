"""Workers are forked by a process that outlives a fork that fails."""

import os
import sys
from pathlib import Path

import pytest

from gymq.cluster import spawner
from gymq.cluster.worker_process import ProcessSpec, StartContext
from gymq.protocol.instances import Instance

FORKSERVER = """\
#!{python}
import os, runpy

fork, succeeds = os.fork, iter([True, False, True])


def sometimes():
    if not next(succeeds):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()


os.fork = sometimes
runpy.run_module("gymq.cluster.forkserver", run_name="__main__")
"""


async def test_a_fork_that_fails_costs_no_worker_its_life(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(FORKSERVER.format(python=sys.executable))
    python.chmod(0o700)
    spec = ProcessSpec("nats://127.0.0.1:9", "resources", [Instance("env", "resources", "no_such_worker")])
    with (tmp_path / "log").open("wb") as log:
        first = await spawner.spawn(str(python), log.fileno())
        with pytest.raises(spawner.CannotFork):
            await spawner.spawn(str(python), log.fileno())
        second = await spawner.spawn(str(python), log.fileno())
    for process in (first, second):
        await process.ask(StartContext(str(tmp_path), dict(os.environ)), spec)
        assert "no_such_worker" in await process.answer()
        await process.wait()
