"""code_gen compares no more output than a right answer may have, and long outputs outside of the event loop."""

from typing import Any

import pytest
from gymq.workers.resources.code_gen.comparison import ByNumbers
from gymq.workers.resources.code_gen.worker import CodeGen

from gymq.testing import Harness, prompt, reply
from tests.security.effort import FOURFOLD, growth, lines_run

OPTIONS = {"unit_test_timeout_secs": 60}


def row(wanted: str, function: str | None = None) -> dict[str, Any]:
    tests = {"inputs": ["1"], "outputs": [wanted], "fn_name": function}
    return {**prompt("q"), "verifier_metadata": {"unit_tests": tests}}


def program(code: str) -> dict[str, Any]:
    return reply(f"```python\n{code}\n```")


@pytest.mark.parametrize(
    ("function", "code", "result"),
    [
        (None, "print('1 ' * 8_000_000)", -2),
        (None, "print('\\n' * 8_000_000)", -2),
        ("f", "def f(x): return [[]] * 4_000_000", False),
        ("f", "def f(x): return '1' * 8_000_000", False),
    ],
)
async def test_a_program_is_ended_that_prints_far_more_than_is_expected(function, code, result):
    async with Harness(CodeGen, OPTIONS) as env:
        verdict = await env.verify(row("1", function), program(code))
    assert (verdict.reward, verdict.fields["result"]) == (0.0, [result])
    assert verdict.fields["metadata"]["error"] == "over the limit: output"


@pytest.mark.parametrize(
    ("wanted", "function", "code"),
    [
        ("1", None, "print('\\n' * 60_000 + '1')"),
        ("1 " * 20_000, None, "print('1.0000000000 ' * 20_000)"),
        ("1", None, "import sys\nprint('x' * 10_000_000, file=sys.stderr)\nprint(1)"),
        ("1", "f", "import os\ndef f(x):\n    os.write(2, b'x' * 10_000_000)\n    return 1"),
    ],
)
async def test_blanks_digits_and_messages_cost_nothing(wanted, function, code):
    async with Harness(CodeGen, OPTIONS) as env:
        verdict = await env.verify(row(wanted, function), program(code))
    assert verdict.reward == 1.0, verdict.fields["metadata"]


async def test_long_outputs_are_compared_in_another_process(monkeypatch):
    calls = []

    async def run(_timeout_s, function, *arguments):
        calls.append(function.__name__)
        return function(*arguments)

    async with Harness(CodeGen, OPTIONS) as env:
        monkeypatch.setattr(env.author.processes, "run", run)
        for length, function, code in (
            (50_000, None, "print('1 ' * 50_000)"),
            (50_000, "f", "def f(x): return '1 ' * 50_000"),
            (50, None, "print('1 ' * 50)"),
        ):
            wanted = "1 " * length
            verdict = await env.verify(row(f'"{wanted}"' if function else wanted, function), program(code))
            assert verdict.reward == 1.0
    assert calls == ["_is_output", "_is_value"]


def test_a_different_number_of_words_is_seen_before_any_is_read():
    assert lines_run(ByNumbers().same_output, "1 " * 10_000, "1 2") < 100


@pytest.mark.parametrize("part", ["1 ", "1\n", "x "])
def test_words_are_compared_once(part):
    assert (
        growth(lambda text: ByNumbers().same_output(text, text.replace("1", "1.0")), lambda n: part * n, 500) < FOURFOLD
    )


def test_values_are_compared_once():
    assert growth(lambda text: ByNumbers().same_value(list(text), list(text)), lambda n: "1" * n, 500) < FOURFOLD
