"""The provider `docker`, with an engine that is there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gymq.ext.containers.docker import DockerSandbox, _docker
from gymq.failures import ComponentFailed
from gymq.sandbox import MIB, Limits, Program, ProgramResult, PythonSession

IMAGE = "python:3.13-slim"


@pytest.fixture
async def sandbox() -> AsyncIterator[DockerSandbox]:
    sandbox = DockerSandbox(IMAGE)
    try:
        await sandbox.start()
    except ComponentFailed as error:
        pytest.skip(error.message)
    yield sandbox
    await sandbox.stop()
    assert not [
        name for name in (await _docker("ps", "-aq", "--filter", "name=gymq-")).split() if name in sandbox._containers
    ]


async def run(sandbox: DockerSandbox, code: str, limits: Limits | None = None, **program):
    argv = (sandbox.python, "-I", "-c", code)
    return await sandbox.run(Program(argv, **program), limits or Limits(time_s=60.0))


async def test_a_program_gets_stdin_and_files_and_answers(sandbox):
    code = "import sys; print(sys.stdin.read() + open('a/b').read()); sys.exit(3)"
    finished = await run(sandbox, code, stdin=b"hello ", files={"a/b": b"world"})
    assert (finished.exit_status, finished.stdout, finished.limit) == (3, b"hello world\n", None)


async def test_there_is_no_network_and_no_privilege(sandbox):
    code = (
        "import os, socket\nprint(os.getuid())\ntry: open('/etc/x', 'w')\nexcept OSError as e: print(e.errno)\n"
        "try: socket.create_connection(('192.0.2.1', 80), 3)\nexcept OSError: print('refused')"
    )
    assert (await run(sandbox, code)).stdout == b"65534\n30\nrefused\n"


async def test_the_clock_the_memory_and_the_output_are_limited(sandbox):
    assert (await run(sandbox, "while True: pass", Limits(time_s=1.0))).limit == "time"
    held = "held = b'x' * 10**9"
    assert (await run(sandbox, held, Limits(time_s=60.0, memory_bytes=64 * MIB))).limit == "memory"
    finished = await run(sandbox, "while True: print('x' * 1000)", Limits(time_s=60.0, output_bytes=10_000))
    assert (finished.limit, len(finished.stdout)) == ("output", 10_000)


async def test_memory_is_named_by_an_engine_that_missed_it(
    sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = sandbox._state

    async def missed(name: str, ended: ProgramResult) -> dict[str, Any]:
        return {**await state(name, ended), "OOMKilled": False}

    monkeypatch.setattr(sandbox, "_state", missed)
    code = "import sys; print('to stderr', file=sys.stderr, flush=True); held = b'x' * 10**9"
    finished = await run(sandbox, code, Limits(time_s=60.0, memory_bytes=64 * MIB))
    assert (finished.exit_status, finished.limit, finished.stderr) == (-9, "memory", b"to stderr\n")
    killed = await run(sandbox, "import os; os.kill(os.getpid(), 9)")
    assert (killed.exit_status, killed.limit, killed.stderr) == (-9, None, b"")


async def test_a_session_keeps_its_names_and_is_replaced_when_it_hangs(sandbox):
    session = PythonSession(sandbox, Limits())
    await session.run("x = 20", 60)
    assert (await session.run("x + 1", 60)).result == "21"
    stuck = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    assert (await session.run(stuck, 1)).timed_out
    assert (await session.run("1 + 1", 60)).result == "2"
    await session.close()


async def test_an_image_that_is_not_there_is_a_failure(sandbox):
    with pytest.raises(ComponentFailed, match="no-such-image"):
        await sandbox.run(Program(("true",), image="no-such-image:1"), Limits(time_s=5.0))


async def test_an_image_of_a_program_may_be_changed_by_it(sandbox):
    command = ("sh", "-c", "echo changed > /etc/issue && cat /etc/issue")
    assert (await sandbox.run(Program(command, image=IMAGE), Limits(time_s=60.0))).stdout == b"changed\n"


async def test_an_engine_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    with pytest.raises(ComponentFailed):
        await DockerSandbox(IMAGE).start()


async def test_the_engines_command_gets_no_secret_of_the_worker(tmp_path, monkeypatch):
    """A mock of `docker` that notes its environment."""
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/bash\nenv >> {tmp_path}/environment\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "unix:///some.sock")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "secret")
    await DockerSandbox(IMAGE).start()
    noted = (tmp_path / "environment").read_text()
    assert "DOCKER_HOST=unix:///some.sock" in noted
    assert "SECRET_OF_THE_WORKER" not in noted


async def test_a_program_is_out_of_time_although_the_engine_noted_its_start_late(tmp_path, monkeypatch):
    """A mock of `docker` on a busy machine: the program ran for its second, and StartedAt is 0.4 s too late."""
    state = {"OOMKilled": False, "Error": "", "ExitCode": 137}
    state |= {"StartedAt": "2026-01-01T00:00:00.4Z", "FinishedAt": "2026-01-01T00:00:01Z"}
    program = tmp_path / "docker"
    runs, noted = "cat > /dev/null; sleep 1.01; exit 137", f"echo '{json.dumps(state)}'"
    program.write_text(f"#!/bin/bash\ncase $1 in run) {runs};; inspect) {noted};; *) ;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    finished = await run(DockerSandbox(IMAGE), "while True: pass", Limits(time_s=1.0))
    assert (finished.exit_status, finished.limit) == (-9, "time")
