"""Workers are forked by a process that outlives a fork that fails."""

import os
import pty
import sys
from pathlib import Path

import pytest

from gymq.cluster import spawner
from gymq.cluster.process_spec import ProcessSpec, StartContext
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
        with pytest.raises(ChildProcessError):
            await spawner.spawn(str(python), log.fileno())
        second = await spawner.spawn(str(python), log.fileno())
    for process in (first, second):
        await process.ask(StartContext(str(tmp_path), dict(os.environ)), spec)
        assert "no_such_worker" in await process.answer()
        await process.wait()


PARENT = """\
import asyncio, os, sys
from pathlib import Path
from gymq.cluster import spawner


def place(pid):  # its group, session and terminal
    return list(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2:5]))


async def main():
    with open("log", "wb") as log:
        worker = await spawner.spawn(sys.executable, log.fileno())
    ours, its = place(os.getpid()), place(worker.pid)
    print(ours[2] > 0, its == [worker.pid, ours[1], 0])
    worker.kill()
    await worker.wait()


asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_has_a_group_of_its_own_in_our_session_and_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "parent.py"])
    printed = b""
    with os.fdopen(terminal, "rb", buffering=0) as shown:
        try:
            while part := shown.read(4096):
                printed += part
        except OSError:  # the last process has closed the other end
            pass
    assert os.waitpid(pid, 0)[1] == 0, printed
    assert printed.split() == [b"True", b"True"]
