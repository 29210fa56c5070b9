import json
from typing import Any

import pytest
from gymq.workers.resources.math_with_code.worker import MathWithCode, find_answer, last_box, published_same_answer
from gymq.workers.resources.mcqa import published

import gymq
from gymq.failures import ComponentFailed
from gymq.testing import Harness, prompt, reply
from tests.support.processes import kept_processes

__all__ = ["kept_processes"]

ROW = {**prompt("q"), "expected_result": "32"}


async def run(session, code: str) -> dict[str, Any]:
    result = await session.call("execute_python", {"code": code})
    assert result.status == 200, result.output
    return json.loads(result.output)


@pytest.fixture
async def env(kept_processes):
    async with Harness(MathWithCode, {"max_execution_time": 60}, processes=kept_processes) as harness:
        yield harness


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nf(5)", "120"),
        ("import math\ndef area(r):\n    return math.floor(math.pi * r)\narea(2)", "6"),
        ("n = 3\nsum(n * i for i in range(4))", "18"),
        ("class A:\n    x = 5\nA().x", "5"),
        ("sorted([3, 1]), round(2.5), isinstance(1, int)", "([1, 3], 2, True)"),
        ("forty = 40\nforty", "40"),
        ("acc = []\nacc.append(1)", "None"),
        ("np.arange(3).sum() + numpy.ones(2).sum()", "5.0"),
        ("'a' + 'b'", "ab"),
        ("", None),
        ("# nothing", None),
        ("print(3)", None),
        ("x = 1\nx + 1  # a comment", "2"),
        ("x = 1\nx\n# a comment", None),
        ("x = 1; x + 1", None),
        ("sum(\n    [1, 2]\n)", None),
        ("for x in (1, 2):\n    x", None),
    ],
)
async def test_ordinary_python_works(env, code, result):
    answer = await run(await env.session(ROW), code)
    assert (answer["success"], answer["result"]) == (True, result), answer


async def test_the_last_line_runs_once(env):
    session = await env.session(ROW)
    await run(session, "acc = []\nacc.append(1)")
    assert (await run(session, "len(acc)"))["result"] == "1"


async def test_what_was_printed_before_an_exception_is_kept(env):
    answer = await run(await env.session(ROW), "print('so far')\n{}['k']")
    assert (answer["success"], answer["stdout"], answer["error_message"]) == (False, "so far\n", "'k'")


async def test_hundreds_of_steps_in_one_session(env):
    session = await env.session(ROW)
    await run(session, "n = 0")
    for _ in range(300):
        await run(session, "n += 1")
    assert (await run(session, "n"))["result"] == "300"


async def test_sessions_are_separate(env):
    one, other = await env.session(ROW), await env.session(ROW)
    await run(one, "x = 1")
    assert not (await run(other, "x"))["success"]


@pytest.mark.parametrize(
    "code", ["import sys\nsys.exit()", "import os\nos._exit(1)", "import os\nos.kill(os.getpid(), 9)"]
)
async def test_a_session_continues_after_code_that_ends_the_interpreter(env, code):
    session = await env.session(ROW)
    assert not (await run(session, code))["success"]
    assert (await run(session, "1 + 1"))["result"] == "2"


@pytest.mark.parametrize(
    "code", ["while True:\n    try:\n        while True: pass\n    except: pass", "10 ** 10 ** 10"]
)
async def test_code_that_holds_on_to_its_time_is_stopped_from_outside(code):
    async with Harness(MathWithCode, {"max_execution_time": 1}) as env:
        session = await env.session(ROW)
        assert (await run(session, code))["error_message"] == "code timed-out"
        assert (await run(session, "1 + 1"))["result"] == "2"


async def test_names_survive_the_time_limit():
    async with Harness(MathWithCode, {"max_execution_time": 1}) as env:
        session = await env.session(ROW)
        await run(session, "kept = 5")
        assert (await run(session, "while True: pass"))["error_message"] == "code timed-out"
        assert (await run(session, "kept"))["result"] == "5"


async def test_end_session_forgets_the_names(env):
    session = await env.session(ROW)
    await run(session, "x = 1")
    assert json.loads((await session.call("end_session", {})).output)["success"]
    assert not (await run(session, "x"))["success"]


async def test_verification_ends_the_interpreter(env):
    session = await env.session(ROW)
    await run(session, "1")
    await session.verify(ROW, reply("\\boxed{32}"))
    assert not env.author.sandbox._sessions


async def test_a_sandbox_that_fails_ends_the_rollout_and_is_no_tool_output(env):
    session = await env.session(ROW)

    async def fail(*_):
        raise ComponentFailed("no more processes")

    env.author.sandbox.open = fail
    with pytest.raises(gymq.RolloutError) as raised:
        await session.call("execute_python", {"code": "1"})
    assert raised.value.retryable


async def test_code_that_is_no_text_is_refused(env):
    assert (await (await env.session(ROW)).call("execute_python", {"code": 1})).status == 422


@pytest.mark.parametrize(
    ("text", "box"),
    [("\\boxed{1} \\boxed{ {2} }", "{2}"), ("\\boxed{1} \\boxed{2", None), ("\\boxed{}", None), ("boxed{1}", None)],
)
def test_the_last_box_is_read_by_counting_braces(text, box):
    output = [{"type": "message", "role": "assistant", "content": text}]
    assert find_answer(output, published.last_box) == box


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("\\boxed{1} \\boxed{ {2} }", "{2}"),
        ("\\boxed{1} \\boxed{2", "1"),
        ("<think>\\boxed{1}</think> none", None),
        ("<think>\\boxed{1}</think> \\boxed {3}", "3"),
        ("\\boxed{1}, no: \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ],
)
def test_the_box_that_the_reply_stands_by_is_read(text, box):
    output = [{"type": "message", "role": "assistant", "content": text}]
    assert find_answer(output, last_box) == box


def test_printed_boxes_count_only_where_no_message_has_one():
    printed = {"type": "function_call_output", "call_id": "c", "output": '{"stdout": "\\\\boxed{7}"}'}
    null = {"type": "function_call_output", "call_id": "c", "output": '{"stdout": null}'}
    said = {"type": "message", "role": "assistant", "content": "\\boxed{8}"}
    assert find_answer([printed, null], last_box) == "7"
    assert find_answer([said, printed], last_box) == "8"


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        ("\\( 32 \\)", "$32$", True),
        ("\\( $ \\text{ 32 } $ \\)", "32", True),
        ("\\text{two  words}", "two words", True),
        ("1e1", "10", True),
        ("1_000", "1000", True),
        ("0.3333334", "0.3333333", True),
        ("0.33334", "0.33333", False),
        ("50\\%", "50", False),
        ("nan", "NaN", False),
        ("inf", "1e999", False),
    ],
)
def test_answers_are_compared_as_text_and_as_numbers(answer, expected, same):
    assert published_same_answer(answer, expected) is same


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("2000001", "2000000", 0.0),
        ("2000001.0", "2000000", 0.0),
        ("2000000.0", "2000000", 1.0),
        ("\\textbf{391}", "391", 1.0),
        ("\\frac{1}{2}", "0.5", 1.0),
        ("1{,}000", "1000", 1.0),
        ("x = 5", "5", 1.0),
        ("2\\sqrt{3}", "2\u221a3", 1.0),
        ("3-1", "4-2", 0.0),
        ("ABC", "BAC", 0.0),
        ("2^{-98}", "2^{-99}", 0.0),
        ("5 or 6", "5", 0.0),
    ],
)
async def test_answers_mean_what_they_mean_in_math_with_judge(env, answer, expected, reward):
    row = ROW | {"expected_result": expected}
    assert (await env.verify(row, reply(f"\\boxed{{{answer}}}"))).reward == reward


async def test_a_close_whole_number_is_right_by_the_published_rule():
    async with Harness(MathWithCode, {"hardened": False}) as env:
        verdict = await env.verify(ROW | {"expected_result": "2000000"}, reply("\\boxed{2000001}"))
    assert verdict.reward == 1.0
