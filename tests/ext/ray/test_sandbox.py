"""The provider `ray`, on a small cluster of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from gymq.ext.ray.sandbox import RaySandbox, _run
from gymq.failures import ComponentFailed, InvalidTask
from gymq.sandbox import Limits, Program, PythonSession


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # Set before the import: they keep the cluster on this machine and apart from others.
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "gymq[ray]"')
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            log_to_driver=False,
            _temp_dir=folder,
        )
        yield
        ray.shutdown()


@pytest.fixture
async def sandbox(cluster: None) -> AsyncIterator[RaySandbox]:
    sandbox = RaySandbox()
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def test_a_program_runs_on_a_node(sandbox):
    program = Program((sandbox.python, "-I", "-c", "print(input() + '!')"), stdin=b"hello\n")
    finished = await sandbox.run(program, Limits(time_s=60.0))
    assert (finished.stdout, finished.limit) == (b"hello!\n", None)


async def test_its_limits_hold_there(sandbox):
    finished = await sandbox.run(Program((sandbox.python, "-c", "while True: pass")), Limits(time_s=1.0))
    assert finished.limit == "time"


async def test_a_program_that_does_not_exist_is_a_failure(sandbox):
    with pytest.raises(ComponentFailed, match="no-such-program"):
        await sandbox.run(Program(("no-such-program",)), Limits())


def test_a_task_that_is_not_valid_is_said_by_the_node():
    program = Program(("true",), folders={"/usr": "/tmp"})
    assert isinstance(_run(None, sys.executable, program, Limits()), InvalidTask)


async def test_a_session_keeps_its_names_and_is_replaced_when_it_hangs(sandbox):
    session = PythonSession(sandbox, Limits())
    await session.run("x = 20", 60)
    assert (await session.run("x + 1", 60)).result == "21"
    assert (await session.run("10 ** 10 ** 10", 1)).timed_out
    assert (await session.run("1 + 1", 60)).result == "2"
    await session.close()


async def test_without_ray_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ComponentFailed, match="gymq\\[ray\\]"):
        await RaySandbox().start()
