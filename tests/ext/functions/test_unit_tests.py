"""Unit tests of a function that a model wrote: what passes, what fails and why, and what cannot be forged."""

from collections.abc import AsyncIterator

import pytest

from gymq.ext.functions import program_in, run_tests
from gymq.failures import ComponentFailed, InvalidTask
from gymq.sandbox import Limits, LocalSandbox, Program, ProgramResult, Sandbox

ADD = "def add(a, b):\n    return a + b\n"
TESTS = "assert add(2, 3) == 5\nassert add('a', 'b') == 'ab'\n"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with LocalSandbox() as started:
        yield started


async def test_a_right_function_passes_all_tests(sandbox: Sandbox):
    found = await run_tests(sandbox, f"It adds:\n```python\n{ADD}```\nDone.", TESTS)
    assert found.passed
    assert found.fields == {
        "test_results": {"assert add(2, 3) == 5": True, "assert add('a', 'b') == 'ab'": True},
        "test_problems": {},
        "tests_passed": 2,
    }


async def test_each_test_that_fails_says_why(sandbox: Sandbox):
    tests = [
        "wanted = 6",
        "assert add(2, 3) == wanted",
        "assert add(2, 3) == 5",
        "assert add(1, 1) > 2, 'more than two'",
        "assert add(2, None)",
        "assert not add(1, 1)",
        "assert other(1)",
        "def test_later():\n    total = add(1, 2)\n    assert total == 4",
    ]
    found = await run_tests(sandbox, ADD, tests)
    assert [(test.name, test.problem) for test in found.tests] == [
        ("assert add(2, 3) == wanted", "AssertionError: add(2, 3) is 5"),
        ("assert add(2, 3) == 5", ""),
        ("assert add(1, 1) > 2, 'more than two'", "AssertionError: more than two: add(1, 1) is 2"),
        ("assert add(2, None)", "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"),
        ("assert not add(1, 1)", "AssertionError: assert not add(1, 1)"),
        ("assert other(1)", "NameError: name 'other' is not defined"),
        ("test_later", "AssertionError: assert total == 4"),
    ]
    assert not found.passed
    assert found.num_passed == 1


async def test_tests_are_asserts_calls_and_functions_that_may_expect_an_exception(sandbox: Sandbox):
    code = """
class Odd(ValueError): pass
LIMIT = 3
def half(n):
    if n % 2: raise Odd("odd")
    return n // 2
def up_to(n): yield from range(n)
"""
    tests = """
from solution import LIMIT, half as halved
def check(candidate):
    assert candidate(4) == 2
check(half)
assert LIMIT == 3
assert list(up_to(3)) == [0, 1, 2]
assert next(up_to(3)) == 0
def test_odd_numbers():
    try:
        halved(3)
    except ValueError as error:
        assert str(error) == "odd"
    else:
        raise AssertionError
"""
    found = await run_tests(sandbox, code, tests)
    assert [test.problem for test in found.tests] == [""] * 5


@pytest.mark.parametrize(
    "code",
    [
        "import os\ndef add(a, b): os._exit(0)",
        "raise SystemExit",
        "def add(a, b) return",
        "",
        "class Equal:\n    def __eq__(self, other): return True\ndef add(a, b): return Equal()",
        "class Five(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Five(7)",
        "import os\nos.write(1, b'[\"passed\"]\\n' * 9)\ndef add(a, b): return print('[\"end\"]')",
        "def add(a, b): return 1\ndef all(x): return True\nbool = isinstance = all",
        "import sys\nsys.modules['solution'].__dict__['assert'] = 1\ndef add(a, b): raise AssertionError",
        (
            "import os, signal\n"
            "def add(a, b):\n"
            "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "        for fd in '1', '3', '4', '5':\n"
            "            try: open(f'/proc/{pid}/fd/{fd}', 'w').write('[\"passed\"]\\n' * 3)\n"
            "            except OSError: pass\n"
            "    os.kill(os.getppid(), signal.SIGKILL)"
        ),
    ],
)
async def test_no_program_passes_that_does_not_return_the_right_values(sandbox: Sandbox, code: str):
    found = await run_tests(sandbox, code, "assert add(2, 3) == 5\nassert all(add(n, 1) == n + 1 for n in range(3))")
    assert [test.passed for test in found.tests] == [False, False]


async def test_what_is_expected_is_not_in_the_process_of_the_program(sandbox: Sandbox):
    code = """
import gc, sys
def add(a, b):
    frame, texts = sys._getframe(), []
    while frame:
        texts.append(repr(frame.f_locals) + repr(frame.f_globals))
        frame = frame.f_back
    texts += [repr(one) for one in gc.get_objects() if isinstance(one, (str, list, dict))]
    with open("/proc/self/mem", "rb") as memory:
        for line in open("/proc/self/maps"):
            begin, _, end = line.split()[0].partition("-")
            if "rw" in line:
                memory.seek(int(begin, 16))
                try: texts.append(repr(memory.read(int(end, 16) - int(begin, 16))))
                except OSError: pass
    wanted = "".join(map(chr, [102, 111, 117, 114, 95, 119, 111, 114, 100, 115]))
    return sum(text.count(wanted) for text in texts)
"""
    found = await run_tests(sandbox, code, "assert add(2, 3) == 'four_words'")
    assert found.tests[0].problem.startswith("AssertionError: add(2, 3) is 0")


async def test_a_program_that_runs_for_ever_keeps_what_it_passed(sandbox: Sandbox):
    code = "def add(a, b):\n    while a == 7: pass\n    return a + b"
    found = await run_tests(
        sandbox, code, "assert add(1, 1) == 2\nassert add(7, 1) == 8\nassert add(1, 1) == 2", Limits(time_s=0.5)
    )
    assert [test.passed for test in found.tests] == [True, False, False]
    assert "was ended by its time limit" in found.tests[1].problem
    assert found.fields["test_results"] == {
        "assert add(1, 1) == 2 (1)": True,
        "assert add(7, 1) == 8": False,
        "assert add(1, 1) == 2 (2)": False,
    }


@pytest.mark.parametrize(
    ("tests", "problem"),
    [
        ("", "no assert"),
        ("x = 1", "no assert"),
        ("assert add(", "cannot be parsed"),
        ("import no_such_module\nassert add(1, 1)", "import what is not there"),
        ("def test_add(given):\n    assert add(given, 1)", "takes arguments"),
        ("assert abs(-2) == 2", "call no function of the program"),
        ("assert add(object(), 1)", "plain type"),
    ],
)
async def test_tests_that_cannot_be_run_are_no_fault_of_the_program(sandbox: Sandbox, tests: str, problem: str):
    with pytest.raises(InvalidTask, match=problem):
        await run_tests(sandbox, ADD, tests)


async def test_a_function_with_the_name_of_a_built_in_is_imported(sandbox: Sandbox):
    tests = "from solution import abs\nassert abs(-2) == 2"
    assert not (await run_tests(sandbox, "def abs(n): return n", tests)).passed
    assert (await run_tests(sandbox, "def abs(n): return max(n, -n)", tests)).passed


class Broken(LocalSandbox):
    """Runs nothing."""

    async def run(self, program: Program, limits: Limits) -> ProgramResult:
        return ProgramResult(127, b"", b"python: not found", None, 0.0)


async def test_a_sandbox_that_does_not_run_the_tests_is_an_error():
    with pytest.raises(ComponentFailed, match="python: not found"):
        await run_tests(Broken(), ADD, TESTS)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("x = 1", "x = 1"),
        ("a\n```python\nx = 1\n```\nb", "x = 1"),
        ("```\nx = 1\n```\n```py\nx = 2\n```", "x = 2"),
        ("```python\nx = 1", "x = 1"),
    ],
)
def test_the_program_is_the_last_block_of_code_or_the_whole_reply(reply: str, code: str):
    assert program_in(reply) == code
