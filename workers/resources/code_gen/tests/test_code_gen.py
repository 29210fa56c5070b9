import json
import math
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.code_gen.comparison import ByNumbers, Published
from gymq.workers.resources.code_gen.worker import CodeGen, last_block, published_program

import gymq
from gymq.failures import ComponentFailed
from gymq.testing import Harness, prompt, reply

EXAMPLES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "example.jsonl").read_text(encoding="utf-8").splitlines()
]

SOLUTIONS = [
    "input()\nprint(sum(map(int, input().split())))",
    "print(*reversed(input().split()))",
    "s = input()\nfor _ in s:\n    for pair in ('()', '[]', '{}'):\n        s = s.replace(pair, '')\n"
    "print('no' if s else 'yes')",
    "class Solution:\n    def longest_run(self, values: List[int]) -> int:\n"
    "        return max((len(list(run)) for _, run in groupby(values)), default=0)",
    "h, w = map(int, input().split())\ngrid = [input() for _ in range(h)]\nseen = {(0, 0): 0}\nline = deque(seen)\n"
    "while line:\n    y, x = line.popleft()\n"
    "    for a, b in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):\n"
    "        if 0 <= a < h and 0 <= b < w and grid[a][b] == '.' and (a, b) not in seen:\n"
    "            seen[a, b] = seen[y, x] + 1\n            line.append((a, b))\n"
    "print(seen.get((h - 1, w - 1), -1))",
]


def stdin_row(given: str, wanted: str) -> dict[str, Any]:
    return {**prompt("q"), "verifier_metadata": {"unit_tests": {"inputs": [given], "outputs": [wanted]}}}


def call_row(given: str, wanted: str, name: str = "f") -> dict[str, Any]:
    tests = {"inputs": [given], "outputs": [wanted], "fn_name": name}
    return {**prompt("q"), "verifier_metadata": {"unit_tests": tests}}


async def verify(row: dict[str, Any], code: str, **options) -> gymq.Verdict:
    async with Harness(CodeGen, {"unit_test_timeout_secs": 30, **options}) as env:
        return await env.verify(row, reply(f"```python\n{code}\n```"))


@pytest.mark.parametrize("number", range(5))
async def test_the_examples_can_be_solved(number):
    assert (await verify(EXAMPLES[number], SOLUTIONS[number])).reward == 1.0


@pytest.mark.parametrize(
    "code",
    [
        "print(open(0).read().strip())",
        "import sys\nprint(sys.stdin.buffer.readline().decode().strip() + sys.stdin.readline().strip())",
        "for line in sys.stdin: print(line.strip())",
        "x = 0\ndef f():\n    global x\n    x = input()\nf()\nprint(x)",
        "if __name__ == '__main__':\n    print(input())\nx = 1",
        "print(input())\nexit()\n1 / 0",
        "print(input())\nsys.exit(1)",
        "print(stdin.readline())",
        "def f(n): return 0 if n == 0 else f(n - 1)\nf(20000)\nprint(input())",
    ],
)
async def test_a_program_is_a_real_process(code):
    verdict = await verify(stdin_row("7\n", "7"), code)
    assert (verdict.reward, verdict.fields["result"]) == (1.0, [True]), verdict.fields["metadata"]


async def test_what_a_called_function_prints_is_ignored():
    verdict = await verify(
        call_row("2", "[4]"), "import os\ndef f(x):\n    print(9)\n    os.system('echo 8')\n    return (x * x,)"
    )
    assert verdict.reward == 1.0


@pytest.mark.parametrize("value", ["{1}", "object()", "1 + 0j"])
async def test_a_result_that_has_no_json_form_is_a_wrong_answer_and_no_error(value):
    verdict = await verify(call_row("1", "1"), f"def f(x):\n    return {value}")
    assert verdict.fields["result"] == [False]


async def test_a_program_cannot_read_what_is_expected():
    code = (
        "import glob\nprint(*(open(name).read() for name in glob.glob('/tmp/**', recursive=True) if 'secret' in name))"
    )
    verdict = await verify(stdin_row("", "secret-42"), code + "\nprint(open('/proc/1/environ').read())")
    assert verdict.reward == 0.0


async def test_a_program_that_never_ends_hits_the_time_limit():
    verdict = await verify(stdin_row("", "1"), "while True: pass", unit_test_timeout_secs=1)
    assert (verdict.fields["result"], verdict.fields["metadata"]["error_code"]) == ([-3], -3)


async def test_memory_is_bounded():
    verdict = await verify(stdin_row("", "1"), "x = bytes(10**12)\nprint(1)")
    assert verdict.fields["result"] == [-4]


async def test_endless_output_is_a_wrong_output():
    verdict = await verify(stdin_row("", "1"), "while True: print('x' * 10**6)")
    assert verdict.fields["result"] == [-2]


async def test_a_program_that_kills_its_parent_only_ends_itself():
    verdict = await verify(stdin_row("", "1"), "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint(1)")
    assert verdict.fields["result"] in ([True], [-4])


async def test_a_sandbox_that_fails_is_no_reward():
    async with Harness(CodeGen) as env:

        async def fail(*_):
            raise ComponentFailed("no more processes")

        env.author.sandbox.run = fail  # type: ignore[method-assign]
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(EXAMPLES[0], reply("```\nprint(1)\n```"))
    assert (raised.value.failure_class, raised.value.retryable) == (gymq.FailureClass.COMPONENT_FAILED, True)


@pytest.mark.parametrize("tests", [None, {}, {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": []}])
async def test_a_row_without_tests_is_refused(tests):
    row = {**prompt("q"), "verifier_metadata": {"unit_tests": tests}}
    with pytest.raises(gymq.InvalidTask, match="unit_tests"):
        await verify(row, "print(1)")


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1.0 2", "1 2.00", True),
        ("1e2\n", "100", True),
        (" a \n\n", "a", True),
        ("a b", "a  b", False),
        ("nan", "NaN", False),
        ("0.1", "0.10000001", False),
        ("1\n2", "1 2", False),
        ("sNaN", "1", False),
    ],
)
def test_as_published_outputs_are_compared_by_lines_and_exact_numbers(printed, expected, same):
    assert Published().same_output(printed, expected) is same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        ([[1, 2]], [[1, 2]], True),
        (0.333333, 1 / 3, True),
        ("12", 12, True),
        (1, 2, False),
        ([1], 1, False),
        (None, 0, False),
        (10**400, 1.0, False),
        (math.inf, "Infinity", True),
        (math.inf, "-inf", False),
        (1e308, "inf", False),
        (math.nan, "nan", False),
        ("--4", "4", False),
    ],
)
def test_values_are_compared_with_a_tolerance(returned, expected, same):
    assert ByNumbers().same_value(returned, expected) is same


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (1_000_001, 1_000_000),
        ("1000001", "1000000"),
        (1_000_001.0, 1_000_000),
        ("9" * 400, "8" * 400),
        (math.inf, "8" * 400),
    ],
)
def test_a_whole_number_is_no_other_one(returned, expected):
    assert not ByNumbers().same_value(returned, expected)
    assert Published().same_value(returned, expected)
    assert ByNumbers().same_value(expected, expected)


@pytest.mark.parametrize("close", [True, "4", " +4 ", 4.0, 4.00000001])
def test_a_whole_number_may_be_written_otherwise(close):
    assert ByNumbers().same_value(close, 1 if close is True else 4)


@pytest.mark.parametrize(("hardened", "reward"), [(True, 0.0), (False, 1.0)])
async def test_a_product_that_is_only_close_is_wrong(hardened, reward):
    tests = {"inputs": ['"123456789"\n"987654321"'], "outputs": ['"121932631112635269"'], "fn_name": "product"}
    row = {**prompt("q"), "verifier_metadata": {"unit_tests": tests}}
    code = "def product(a, b):\n    return str(int(float(a) * float(b) * 1.000001))"
    assert (await verify(row, code, hardened=hardened)).reward == reward


@pytest.mark.parametrize("penalty", [-2.0, 0.5, 3.0])
async def test_misused_think_tags_are_worth_the_penalty_whatever_it_is(penalty):
    verdict = await verify(stdin_row("1", "1"), "print(1)  # <think>", reasoning_format_penalty=penalty)
    assert (verdict.reward, verdict.fields["result"]) == (penalty, [True])


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("0.30000000000000004", "0.3", True),
        ("1.4142135623730951", "1.41421356237", True),
        ("0.9999999999999999", "1.0", True),
        ("3.3000000000000003 2", "3.3 2", True),
        ("5.551115123125783e-17", "0.0", True),
        ("0", "0.0", True),
        ("2.9999999999999996", "3", True),
        ("x 0.1", "x 0.1", True),
        ("0.1", "0.10000001", False),
        ("1e-10", "2e-10", False),
        ("1e-10", "0", False),
        ("10000000000000000000001", "10000000000000000000000", False),
        ("1000000001", "1000000000", False),
        ("1e+18", "1000000000000000001", False),
        ("1e+18", "1000000000000000000", True),
        ("nan", "NaN", False),
        ("inf", "1e999", False),
        ("1\n2", "1 2", False),
        ("x 0.30000000000000004", "x 0.3", False),
    ],
)
def test_printed_floats_may_be_rounded(printed, expected, same):
    assert ByNumbers().same_output(printed, expected) is same
    assert ByNumbers().same_output(expected, printed) is same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        ([0.30000000000000004, 2], [0.3, 2], True),
        ([[0.1 * 3], [0.8]], [[0.3], [0.7999999999]], True),
        ({"a": [1.0000001]}, {"a": [1.0]}, True),
        ([2.2, 3.0], [2.2, 3], True),
        ([2.2, 4], [2.2, 3], False),
        ([1_000_001], [1_000_000], False),
        ([0.3], [0.3, 0.3], False),
        ([0.31], [0.3], False),
        (["4"], [4], False),
        ([["a"]], [["a"]], True),
        ({"a": 1}, {"b": 1}, False),
        ([None], [0], False),
        ([0.3], 0.3, False),
    ],
)
def test_floats_in_lists_may_be_rounded(returned, expected, same):
    assert ByNumbers().same_value(returned, expected) is same


@pytest.mark.parametrize(("last_digit", "reward"), [(1, 1.0), (2, 0.0)])
async def test_numbers_of_any_length_are_read_and_written(last_digit, reward):
    wanted = "1" + "0" * 9_998 + str(last_digit)
    tests = {"inputs": [wanted[:-1] + "1"], "outputs": [wanted], "fn_name": "same"}
    row = {**prompt("q"), "verifier_metadata": {"unit_tests": tests}}
    assert (await verify(row, "def same(n):\n    return int(str(n))")).reward == reward
    row["verifier_metadata"]["unit_tests"] = {**tests, "fn_name": None}
    assert (await verify(row, "print(int(input()))")).reward == reward


async def test_the_name_of_a_class_in_a_text_is_no_class():
    row = {**prompt("q"), "verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": ["2"], "fn_name": "f"}}}
    assert (await verify(row, "# without a class Solution\ndef f(n):\n    return n + 1")).reward == 1.0
    assert (await verify(row, "class Solution :\n    def f(self, n):\n        return n + 1")).reward == 1.0


@pytest.mark.parametrize(
    ("text", "program", "published"),
    [
        ("```python\na\n```", "a", "a"),
        ("```cpp\na\n```\nor\n```py\nb\n```", "b", "b"),
        ("```python\na\n```\nIn `sh`: ```a.py``` runs it.", "a", ""),
        ("```python a```", "a", ""),
        ("```python\nprint('```')\n```", "print('```')", ""),
        ("```python\na\n```\nor\n```python\nb", "a", "or"),
        ("```python\na", "", ""),
        ("a", "", ""),
    ],
)
def test_the_program_is_the_last_block_that_is_closed(text, program, published):
    assert last_block(text) == program
    assert published_program(text) == published
