"""Ordinary programs: what goes in, what comes out."""

from __future__ import annotations

import asyncio
import os

import pytest

from gymq.failures import ComponentFailed
from gymq.protocol.messages import FailureClass
from gymq.sandbox import Limits, LocalSandbox, Program, ProgramResult
from gymq.sandbox.interface import LimitName

from .conftest import run_python


async def test_a_program_reads_its_stdin_and_its_output_comes_back(sandbox: LocalSandbox):
    code = "import sys; print(sys.stdin.read().upper()); print('so', file=sys.stderr)"
    finished = await run_python(sandbox, code, stdin=b"hello")
    assert (finished.exit_status, finished.stdout, finished.stderr, finished.limit) == (0, b"HELLO\n", b"so\n", None)


async def test_the_exit_status_is_that_of_the_program(sandbox: LocalSandbox):
    assert (await run_python(sandbox, "raise SystemExit(3)")).exit_status == 3


async def test_a_signal_is_a_negative_exit_status(sandbox: LocalSandbox):
    assert (await run_python(sandbox, "import os; os.kill(os.getpid(), 11)")).exit_status == -11


async def test_files_lie_in_the_working_directory_and_can_be_changed(sandbox: LocalSandbox):
    code = "open('a/b', 'a').write('!'); print(open('a/b').read()); open('new', 'w').write('x')"
    finished = await run_python(sandbox, code, files={"a/b": b"text"})
    assert (finished.stdout, finished.stderr) == (b"text!\n", b"")


async def test_nothing_is_left_for_the_next_program(sandbox: LocalSandbox):
    await run_python(sandbox, "open('/tmp/gymq-left', 'w').write('x'); open('left', 'w').write('x')")
    finished = await run_python(sandbox, "import os; print(os.listdir('.'))")
    assert finished.stdout == b"[]\n"


@pytest.mark.parametrize("name", ["/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"])
async def test_stdin_has_its_usual_names(sandbox: LocalSandbox, name: str):
    code = f"print(open('{name}').read()); open('{name}', 'rb+', buffering=0).write(b'x')"
    finished = await run_python(sandbox, code, stdin=b"hello")
    assert finished.stdout == b"hello\n", finished.stderr
    assert b"Operation not permitted" in finished.stderr


async def test_stdin_cannot_be_written_to(sandbox: LocalSandbox):
    finished = await run_python(sandbox, "import os; os.write(0, b'x')", stdin=b"hello")
    assert b"Operation not permitted" in finished.stderr


async def test_there_is_no_terminal(sandbox: LocalSandbox):
    assert (await run_python(sandbox, "open('/dev/tty')")).exit_status == 1


async def test_a_program_that_does_not_exist_is_a_failure_of_the_sandbox(sandbox: LocalSandbox):
    with pytest.raises(ComponentFailed, match="no-such-program") as raised:
        await sandbox.run(Program(("no-such-program",)), Limits())
    assert raised.value.retryable
    assert raised.value.failure_class == FailureClass.COMPONENT_FAILED


async def test_many_programs_run_at_once_without_mixing(sandbox: LocalSandbox):
    outputs = await asyncio.gather(*(run_python(sandbox, f"print({number})") for number in range(8)))
    assert [int(finished.stdout) for finished in outputs] == list(range(8))


async def test_folders_are_copied_to_their_place(closed_sandbox: LocalSandbox, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x").write_text("one")
    code = "print(open('/testbed/src/x').read()); open('/testbed/src/x', 'w').write('two')"
    finished = await run_python(closed_sandbox, code, folders={"/testbed": str(tmp_path)})
    assert (finished.stdout, finished.stderr) == (b"one\n", b"")
    assert (tmp_path / "src" / "x").read_text() == "one"


async def test_nothing_is_left_open_in_the_worker(sandbox: LocalSandbox):
    await run_python(sandbox, "pass")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run_python(sandbox, "pass")
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(("limit", "said"), [("time", "at work\nasks the tool"), (None, "asks the tool\nKilled")])
def test_what_a_program_was_doing_at_its_limit_is_in_its_output_and_its_errors(
    limit: LimitName | None, said: str
) -> None:
    assert ProgramResult(-9, b"at work\n", b"asks the tool\nKilled\n", limit, 6.0).last_words == said


async def test_a_system_call_that_is_refused_says_so_and_one_that_is_newer_is_missing(sandbox: LocalSandbox):
    code = (
        "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "for call in (lambda: libc.ptrace(0, 0, 0, 0), lambda: libc.syscall(425, 1, 0), lambda: libc.syscall(999)):\n"
        "    print(call(), errno.errorcode[ctypes.get_errno()])"
    )
    assert (await run_python(sandbox, code)).stdout == b"-1 EPERM\n-1 ENOSYS\n-1 ENOSYS\n"


async def test_languages_and_their_threads_run(sandbox: LocalSandbox):
    source = (
        b"#include <pthread.h>\n#include <stdio.h>\nvoid *f(void *x) { return x; }\n"
        b'int main() { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts("threads"); }\n'
    )
    script = "cc -pthread -o a a.c && ./a && ls | sort | tar cf b.tar a.c && git init -q . && git status -s | wc -l"
    finished = await sandbox.run(Program(("sh", "-c", script), files={"a.c": source}), Limits(time_s=60.0))
    assert (finished.stdout.split(), finished.stderr) == ([b"threads", b"3"], b"")
