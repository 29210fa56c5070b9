import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.evalplus.comparison import all_close, passed_tests
from gymq.workers.resources.evalplus.tasks import Task
from gymq.workers.resources.evalplus.worker import EvalPlus, last_python_block

import gymq
from gymq.ext.functions.harness.values import MAX_DEPTH, decode, encode
from gymq.failures import ComponentFailed
from gymq.testing import Harness, prompt, reply

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = [json.loads(line) for line in (DATA / "example.jsonl").read_text(encoding="utf-8").splitlines()]
TASKS = [json.loads(line) for line in (DATA / "problems.jsonl").read_text(encoding="utf-8").splitlines()]
OPTIONS = {"dataset": "humaneval", "problems": "data/problems.jsonl"}


def block(code: str) -> dict[str, Any]:
    return reply(f"```python\n{code}\n```")


async def verify(number: int, code: str, **options: Any) -> gymq.Verdict:
    async with Harness(EvalPlus, {**OPTIONS, **options}) as env:
        return await env.verify(EXAMPLES[number], block(code))


async def test_the_references_pass():
    async with Harness(EvalPlus, OPTIONS) as env:
        for row, task in zip(EXAMPLES, TASKS, strict=True):
            verdict = await env.verify(row, block(task["prompt"] + task["canonical_solution"]))
            assert verdict.fields["plus_status"] == "pass", task["task_id"]


PROGRAMS = [
    ("def tide_range(levels):\n    return max(levels) - min(levels)", "fail", [1, 0]),
    ("def tide_range(levels):\n    input()\n    return 6", "fail", [0, 0]),
    ("def tide_range(levels):\n    import sys\n    return len(sys.stdin.read()) or 6", "fail", [0, 0]),
    ("def tide_range(levels):\n    import sys\n    sys.exit(0)", "fail", [0, 0]),
    ("def tide_range(levels):\n    import os\n    return 6 if levels else os._exit(0)", "timeout", [1]),
    ("def tide_range(levels):\n    import os\n    os.fork()\n    return 6 if levels else 0", "pass", [1, 1]),
    ("def tide_range(levels):\n    print('[1')\n    return 6 if levels else 0", "pass", [1, 1]),
    ("def other(levels):\n    return 0", "fail", [0, 0]),
    ("raise SystemExit", "fail", []),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "timeout", []),
    (
        "class Equal:\n    def __eq__(self, other):\n        return True\ndef tide_range(levels):\n    return Equal()",
        "fail",
        [0, 0],
    ),
    ("def tide_range(levels):\n    loop = []\n    loop.append(loop)\n    return loop", "fail", [0, 0]),
    ("def tide_range(levels):\n    return 'x' * 10**7", "fail", []),
    ("def tide_range(levels):\n    return bytes(10**11)", "fail", [0, 0]),
    (
        "if __name__ == '__main__':\n    1 / 0\ndef tide_range(levels):\n    return 6.0 if levels else 0",
        "pass",
        [1, 1],
    ),
]


async def test_what_a_program_may_do():
    async with Harness(EvalPlus, OPTIONS) as env:
        for code, base, details in PROGRAMS:
            fields = (await env.verify(EXAMPLES[0], block(code))).fields
            assert (fields["base_status"], fields["metadata"]["base_details"]) == (base, details), code


async def test_a_test_without_end_fails_and_the_next_is_run():
    code = "def tide_range(levels):\n    while levels:\n        pass\n    return 0"
    verdict = await verify(0, code, min_time_limit=0.3)
    assert verdict.fields["metadata"] == {"base_details": [0, 1], "plus_details": [0, 0, 0]}
    assert verdict.fields["base_status"] == "fail"


async def test_a_program_that_does_not_let_itself_be_interrupted_is_killed(monkeypatch):
    monkeypatch.setattr("gymq.workers.resources.evalplus.worker.GRACE_S", 0.5)
    code = (
        "def tide_range(levels):\n    while True:\n        try:\n            while True:\n                pass\n"
        "        except Exception:\n            pass"
    )
    verdict = await verify(0, code, min_time_limit=0.1)
    assert verdict.fields["base_status"] == verdict.fields["plus_status"] == "timeout"
    assert verdict.fields["metadata"] == {"base_details": [], "plus_details": []}


async def test_a_program_finds_no_results_of_the_reference():
    code = (
        "import gc, os\n"
        "def tide_range(levels):\n"
        "    assert not os.listdir()\n"
        "    seen = [one for one in gc.get_objects() if isinstance(one, dict) and 'canonical_solution' in one]\n"
        "    return 0 if seen or not levels else 6"
    )
    assert (await verify(0, code)).fields["base_status"] == "pass"


@pytest.mark.parametrize(
    ("metadata", "error"),
    [(None, "no verifier_metadata"), ({"task_id": "Harbour/9"}, "Harbour/9"), ({"task_id": 3}, "3")],
)
async def test_an_unknown_task_earns_nothing_and_says_why(metadata, error):
    async with Harness(EvalPlus, OPTIONS) as env:
        verdict = await env.verify({**prompt("q"), "verifier_metadata": metadata}, block("x"))
    assert verdict.reward == 0.0
    assert error in verdict.fields["metadata"]["error"]


@pytest.mark.parametrize(
    "options", [{"dataset": "other"}, {"dataset": "mbpp"}, {**OPTIONS, "problems": "missing.jsonl"}]
)
async def test_a_task_set_that_is_not_there_is_refused(options):
    with pytest.raises(gymq.OptionsError, match=r"dataset|problems"):
        async with Harness(EvalPlus, options):
            pass


async def test_a_reference_that_fails_is_an_error_of_the_task_and_no_verdict(tmp_path):
    broken = tmp_path / "problems.jsonl"
    broken.write_text(json.dumps({**TASKS[0], "canonical_solution": "    return levels[0]\n"}))
    with pytest.raises(gymq.InvalidTask, match="fails on its input 2"):
        await verify(0, "def tide_range(levels):\n    return 0", problems=str(broken))


async def test_a_sandbox_that_fails_is_no_reward():
    async with Harness(EvalPlus, OPTIONS) as env:

        async def fail(*_):
            raise ComponentFailed("no more processes")

        env.author.sandbox.run = fail  # type: ignore[method-assign]
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(EXAMPLES[0], block("x"))
    assert raised.value.failure_class == gymq.FailureClass.COMPONENT_FAILED


# Reading and comparing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\n```python\nb\n```", "\nb\n"),
        ("```python\na\n```\n```\nb\n```", "\na\n"),
        ("```python3\na\n```", "3\na\n"),
        ("```python\na", None),
        ("```python```", None),
        ("```py\na\n```", None),
        ("```python" * 3, None),
    ],
)
def test_the_last_block_of_python_is_read(text, code):
    assert last_python_block(text) == code


VALUES = [
    None,
    True,
    7,
    10**5000,
    -(2**63),
    0.1,
    -0.0,
    float("inf"),
    2j,
    "ä\ud800",
    b"\0",
    [],
    [(1,), {2}],
    {"a": {1: None}},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(type(value)))
def test_values_survive_the_way_out_of_the_sandbox(value):
    assert decode(json.loads(json.dumps(encode(value)))) == value


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "form", [encode(object()), encode(nested(MAX_DEPTH + 1)), ["set", ["list"]], ["int", 3], ["dict", 1], [[]], {}, []]
)
def test_what_is_no_value_is_refused(form):
    with pytest.raises(ValueError, match=r"value"):
        decode(form)


def line(value: Any, elements: Any = None) -> bytes:
    return json.dumps(["value", encode(value), True, elements and encode(elements), 0.0]).encode()


def passed(entry_point: str, arguments: list[Any], expected: Any, result: Any, *, dataset="mbpp", atol=0.0) -> bool:
    return passed_tests(dataset, entry_point, atol, [encode(arguments)], [line(expected)], [line(result)]) == [1]


@pytest.mark.parametrize(
    ("entry_point", "arguments", "expected", "result", "right"),
    [
        ("f", [], 3, 3.0, True),
        ("f", [], 0.1, 0.1 + 9e-7, True),
        ("f", [], 0.1, 0.1 + 2e-6, False),
        ("f", [], (0.5, 0.5), (0.5, 0.5 + 1e-7), True),
        ("f", [], (0.5, 0.5), [0.5, 0.5 + 1e-7], False),
        ("f", [], [0.5, 1], [0.5 + 1e-7, 1], False),
        ("f", [], [0.5], [0.5, 0.5], False),
        ("f", [], float("nan"), float("nan"), False),
        ("find_zero", [[-4.0, 0, 1]], 2.0, -2.0, False),
        ("are_equivalent", [1, 2], True, object(), True),
        ("sum_div", [8], 7, 0, True),
        ("surface_Area", [3, 4], 33, 35, True),
        ("surface_Area", [3, 4], 33, 34.6, False),
        ("surface_Area", [3, 4], 33, "35", False),
        ("digit_distance_nums", [123, 256], 7, 7, True),
        ("digit_distance_nums", [100, 99], 1, 19, True),
        ("similar_elements", [], (4, 5), [5, 4, 4], True),
        ("similar_elements", [], (4, 5), 4, False),
        ("check_str", ["a"], object(), True, True),
        ("check_str", ["a"], object(), object(), True),
        ("check_str", ["b"], None, True, False),
        ("check_str", ["b"], None, None, True),
    ],
)
def test_results_are_compared_by_the_rules_of_the_task(entry_point, arguments, expected, result, right):
    assert passed(entry_point, arguments, expected, result) is right


@pytest.mark.parametrize(("root", "right"), [(-2.0, True), (2.0, True), (2.1, False), (2j, False), (1e999, False)])
def test_any_root_of_a_polynomial_is_right(root, right):
    assert passed("find_zero", [[-4.0, 0, 1]], 2.0, root, dataset="humaneval", atol=1e-4) is right


def test_an_iterator_has_the_elements_that_it_gave():
    lines = [line(object(), elements={4, 5})]
    assert passed_tests("mbpp", "Diff", 0.0, [encode([])], [line([5, 4])], lines) == [1]


def test_the_tolerance_for_floats_stays_on():
    inputs, expected = [encode([])] * 3, [line([1.0, 2]), line(0.5), line([1.0, 2])]
    results = [line([1.0 + 1e-7, 2]), line(0.5), line([1.0 + 1e-7, 2])]
    assert passed_tests("mbpp", "f", 0.0, inputs, expected, results) == [0, 1, 1]


@pytest.mark.parametrize("forged", [b"", b"{}", b'["value", 1]', b'["value", 1, true, null, "s"]', b"[" * 100_000])
def test_lines_that_the_harness_did_not_write_are_failed_tests(forged):
    assert passed_tests("mbpp", "f", 0.0, [encode([])], [line(1)], [forged]) == [0]


@pytest.mark.parametrize(
    ("result", "expected", "close"),
    [
        ([[1.0], [2.0]], [[1.0, 1.0], [2.0, 2.0 + 1e-7]], True),
        ([1, 2], [1, 3], False),
        (float("inf"), float("inf"), True),
        (1.0, float("inf"), False),
        (True, 1.0, True),
    ],
)
def test_arrays_are_close(result, expected, close):
    assert all_close(result, expected, 1e-6) is close


@pytest.mark.parametrize(
    ("result", "expected"), [([[1.0], [1.0, 2.0]], [[1.0], [1.0]]), ("a", "b"), (2**64, 1.0), ({1}, {1})]
)
def test_what_is_no_array_is_not_close(result, expected):
    with pytest.raises((TypeError, ValueError), match="array"):
        all_close(result, expected, 1e-6)


@pytest.mark.parametrize(
    ("number", "written", "typed"),
    [
        (2, [[1, 2], [3]], [(1, 2), (3,)]),
        (63, [[[1, 2]]], [[(1, 2)]]),
        (75, [[[1, 2]], 3], [[(1, 2)], 3]),
        (106, [[1], [2]], [[1], (2,)]),
        (115, [[[1, 1], []]], [[{1}, {}]]),
        (124, ["0", "1j"], [0.0, 1j]),
        (252, ["1j"], [1j]),
        (259, [[[1], [2]]], [((1,), (2,))]),
        (278, [[1, [2]]], [(1, (2,))]),
        (307, [[1, []], 0, 50], [(1, []), 0, 50]),
        (580, [[1, [2]]], ((1, (2,)),)),
        (722, [{"a": [1]}, 2], [{"a": (1,)}, 2]),
        (1, [[1]], [[1]]),
    ],
)
def test_inputs_of_mbpp_have_the_types_that_json_lacks(number, written, typed):
    task = Task(**{**TASKS[0], "task_id": f"Mbpp/{number}", "base_input": [written], "plus_input": []})
    assert decode(task.inputs("mbpp")[0][0]) == typed
    assert decode(task.inputs("humaneval")[0][0]) == written
