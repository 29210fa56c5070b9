"""Interpreters that stay: they keep names, and nothing of them stays when they are closed or hostile."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from gymq.failures import ComponentFailed
from gymq.sandbox import Limits, LocalSandbox, Program, PythonSession, SessionEnded
from gymq.sandbox.interface import MIB

from .conftest import alive
from .test_hostile import gone

LIMITS = Limits(time_s=1.0)  # which is for programs: a session lasts


@pytest.fixture
async def session(sandbox: LocalSandbox):
    session = PythonSession(sandbox, LIMITS)
    yield session
    await session.close()


async def test_names_survive_and_the_last_value_is_told(session: PythonSession):
    await session.run("x = [1]", 60)
    step = await session.run("x.append(2)\nx", 60)
    assert (step.success, step.result) == (True, "[1, 2]")


async def test_output_of_child_processes_belongs_to_the_step(session: PythonSession):
    step = await session.run("import os, sys\nos.system('echo child')\nprint('warned', file=sys.stderr)", 60)
    assert (step.stdout, step.stderr) == ("child\n", "warned\n")
    assert (await session.run("1", 60)).stdout == ""


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}", "\0"])
async def test_long_output_is_cut_and_the_session_continues(session: PythonSession, character: str):
    step = await session.run(f"text = {character!r} * 10**6\nprint(text)\ntext", 60)
    assert (len(step.stdout), len(step.result or "")) == (100_000, 100_000), step.error
    assert (await session.run("len(text)", 60)).result == "1000000"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\x7f\\xff\\xff\\xff')\n    except OSError: pass",
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\0\\0\\0\\x02{}')\n    except OSError: pass",
        "import os\nos.closerange(0, 20)",
        "import ctypes\nctypes.string_at(0)",
    ],
)
async def test_an_interpreter_that_is_broken_is_replaced(session: PythonSession, code):
    await session.run("x = 1", 60)
    assert not (await session.run(code, 60)).success
    assert (await session.run("1 + 1", 60)).result == "2"


FORKS = [
    "import os\nif os.fork() == 0: pass",
    "import os\nif os.fork() == 0: print('child')",
    "import os\nif os.fork() == 0: raise ValueError('child')",
    "import os, sys\nif os.fork() == 0: sys.exit(3)",
    "import ctypes\nctypes.CDLL(None).fork()",
    "import os\nfor _ in range(3): os.fork()",
    "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=print)\np.start(); p.join()",
]


async def test_a_fork_does_not_answer_too(session: PythonSession):
    assert (await session.run("names = 'kept'", 60)).success
    for code in FORKS:
        assert (await session.run(code, 60)).error is None, code
        for number in range(5):
            step = await session.run(f"{number}\n", 60)
            assert (step.result, step.names_lost) == (str(number), False), code
    assert (await session.run("names", 60)).result == "kept"


# What code finds out about the conversation: the descriptors, and the number of the message that is being answered.
FORGE = """
import json, os, sys
body = json.dumps({{"success": True, "stdout": "forged", "stderr": "", "error": None, "traceback": None,
    "result": "forged", "shown": None, "timed_out": False}}).encode()
frame = sys._getframe()
while "head" not in frame.f_locals: frame = frame.f_back
number = {number}
for _ in range({times}):
    os.write(frame.f_locals["answers"].fileno(), len(body).to_bytes(4, "big") + number + body)
"""


@pytest.mark.parametrize("number", ["frame.f_locals['number']", "bytes(8)"])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_forged_answer_is_not_taken_for_that_to_another_call(session: PythonSession, number, times):
    await session.run(FORGE.format(number=number, times=times), 60)
    answers = [await session.run(f"{number}", 60) for number in range(4)]
    assert [step.result for step in answers if not step.names_lost] == [
        str(number) for number, step in enumerate(answers) if not step.names_lost
    ]
    assert [step.names_lost for step in answers][-1] is False  # one interpreter is lost at most
    assert sum(step.names_lost for step in answers) <= 1


async def test_memory_is_limited(sandbox: LocalSandbox):
    session = PythonSession(sandbox, Limits(memory_bytes=300 * MIB))
    assert not (await session.run("x = bytes(10**9)", 60)).success
    assert (await session.run("1 + 1", 60)).result == "2"
    await session.close()


async def test_closing_ends_the_interpreter_and_what_it_started(sandbox: LocalSandbox):
    marker = f"session-{os.getpid()}-{time.monotonic_ns()}"
    session = PythonSession(sandbox, LIMITS)
    # What a step started stops when the step ends, so the step waits until exec closes the pipe.
    start = (
        "import os\nreads, writes = os.pipe()\n"
        f"if os.fork() == 0: os.execlp('sh', '{marker}', '-c', 'sleep 1000; true')\n"
        "os.close(writes)\nos.read(reads, 1)"
    )
    assert (await session.run(start, 60)).success
    assert alive(marker)
    await session.close()
    await session.close()
    assert await gone(marker)


async def test_stopping_the_sandbox_ends_its_sessions(sandbox: LocalSandbox):
    session = PythonSession(sandbox, LIMITS)
    await session.run("1", 60)
    await sandbox.stop()
    assert not sandbox._sessions


async def test_sessions_do_not_take_the_places_of_programs(sandbox: LocalSandbox):
    sessions = [PythonSession(sandbox, LIMITS) for _ in range(4)]
    await asyncio.gather(*(session.run("1", 60) for session in sessions))
    finished = await sandbox.run(Program((sandbox.python, "-I", "-c", "print(1)")), Limits(time_s=60.0))
    assert finished.stdout == b"1\n"
    await asyncio.gather(*(session.close() for session in sessions))


async def test_a_program_that_speaks_no_protocol_ends_its_session(sandbox: LocalSandbox):
    session = await sandbox.open(Program(("true",)), LIMITS)
    with pytest.raises(SessionEnded):
        await session.exchange(b"{}", 60)


async def test_an_interpreter_that_is_not_there_is_a_failure_of_the_sandbox(sandbox: LocalSandbox):
    sandbox.python = "/no/such/python"
    with pytest.raises(ComponentFailed):
        await PythonSession(sandbox, LIMITS).run("1", 60)
