import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.code_fim.worker import CodeFim, completion_of, extract_code

import gymq
from gymq.failures import ComponentFailed
from gymq.testing import Harness, prompt, reply

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = [json.loads(line) for line in (DATA / "example.jsonl").read_text(encoding="utf-8").splitlines()]
GAPS = [json.loads(line) for line in (DATA / "problems.jsonl").read_text(encoding="utf-8").splitlines()]
OPTIONS = {"problems": "data/problems.jsonl"}


def block(code: str) -> dict[str, Any]:
    return reply(f"```python\n{code}```")


async def statuses(*codes: str, row: dict[str, Any] = EXAMPLES[0], **options: Any) -> list[Any]:
    async with Harness(CodeFim, {**OPTIONS, **options}) as env:
        verdicts = await asyncio.gather(*(env.verify(row, block(code)) for code in codes))
    return [verdict.fields["status"] for verdict in verdicts]


async def test_the_missing_parts_pass():
    async with Harness(CodeFim, OPTIONS) as env:
        given = zip(EXAMPLES, GAPS, strict=True)
        verdicts = await asyncio.gather(*(env.verify(row, block(gap["canonical_solution"])) for row, gap in given))
    assert [verdict.fields["status"] for verdict in verdicts] == ["passed"] * 5


async def test_a_reply_with_the_whole_function_passes():
    part = GAPS[0]["canonical_solution"]
    async with Harness(CodeFim, OPTIONS) as env:
        verdict = await env.verify(EXAMPLES[0], block(GAPS[0]["prompt"] + part + GAPS[0]["suffix"]))
    assert (verdict.reward, verdict.fields["completion"]) == (1.0, part)


async def test_every_exception_is_a_failure_with_its_text():
    found = await statuses(
        "    high, low = 1, 1\n",
        "    high, low = levels['x']\n",
        "    raise SystemExit('enough')\n",
        "    import sys; sys.exit(0)\n",
        "    input()\n",
        "    import sys; sys.stdin.read()\n",
        "    high, low = max(levels), min(levels\n",
    )
    assert found[:6] == [
        "failed: ",
        "failed: list indices must be integers or slices, not str",
        "failed: enough",
        "failed: 0",
        "failed: ",
        "failed: ",
    ]
    assert found[6].startswith("failed: ")
    assert "(<string>, line " in found[6]


async def test_a_program_that_does_not_end_or_dies_is_timed_out():
    found = await statuses(
        "    while True: pass\n",
        "    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n",
        timeout=1.0,
    )
    assert found == ["timed out", "timed out"]


async def test_a_process_that_ends_early_has_not_passed():
    found = await statuses(
        "    import os; os._exit(0)\n",
        "    import posix\n"
        "    for fd in range(20):\n"
        '        try: posix.write(fd, b\'["end", ""]\\n\')\n'
        "        except OSError: pass\n"
        "    posix._exit(0)\n",
    )
    assert found == ["timed out", "timed out"]


EQUALS_ALL = """
    class Any:
        __eq__ = __le__ = __ge__ = __abs__ = __sub__ = lambda *_: True
    class Number(int):
        __eq__ = __hash__ = lambda *_: True
    class Liar:
        __class__ = property(lambda _: int)
        __eq__ = lambda *_: True
"""


async def test_an_object_that_equals_everything_is_no_result():
    kinds = ("Any()", "Number(1)", "[Number(1)]", "Liar()")
    found = await statuses(*(f"{EQUALS_ALL}    return {kind}\n    high = low = 1\n" for kind in kinds))
    assert [status.partition(":")[0] for status in found] == ["failed"] * len(kinds)


HALF = {
    "task_id": "half",
    "prompt": "def twice(x):\n    return x + x\ndef half(x):\n",
    "suffix": "",
    "canonical_solution": "    return x / 2\n",
    "test": "import math\ndef check(candidate):\n    assert math.fabs(twice(candidate(3.0)) - abs(-3.0)) < 1e-6\n",
    "entry_point": "half",
}
HACKS = {
    "builtin": "    return -3.0\nimport builtins; builtins.abs = abs = lambda x: -6.0\n",
    "helper": "    return 7.0\ntwice = lambda x: 3.0\n",
    "module": "    return 7.0\nimport math; math.fabs = lambda x: 0.0\n",
    "runner": """
    import os, sys
    frame = sys._getframe()
    while frame := frame.f_back:
        if "mark" in frame.f_locals:
            frame.f_locals["say"]("end", frame.f_locals["mark"])
            os._exit(0)
""",
}


async def test_a_program_cannot_change_its_test(tmp_path):
    (tmp_path / "problems.jsonl").write_text(json.dumps(HALF))
    row = EXAMPLES[0] | {"verifier_metadata": {"task_id": "half"}}
    found = await statuses(*HACKS.values(), "    return x / 2\n", row=row, problems=str(tmp_path / "problems.jsonl"))
    assert [status.partition(":")[0] for status in found] == ["failed"] * len(HACKS) + ["passed"]


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"canonical_solution": "    return (\n"}, "never closed"),
        ({"test": "def check(candidate):\n    candidate([print])"}, "an argument"),
    ],
)
async def test_a_task_that_cannot_be_tested_is_no_reward(broken, text, tmp_path):
    (tmp_path / "problems.jsonl").write_text(json.dumps(HALF | broken))
    row = EXAMPLES[0] | {"verifier_metadata": {"task_id": "half"}}
    with pytest.raises(gymq.InvalidTask, match=text):
        await statuses("    return x / 2\n", row=row, problems=str(tmp_path / "problems.jsonl"))


async def test_a_program_cannot_look_into_the_process_of_its_tests():
    files = "mem", "maps", "fd/0", "fd/1", "environ"
    code = f"""
    import os
    for file in {files}:
        try:
            os.open(f"/proc/{{os.getppid()}}/{{file}}", os.O_RDONLY)
        except PermissionError:
            continue
        os._exit(0)
    high, low = max(levels), min(levels)
"""
    assert await statuses(code) == ["passed"]


async def test_output_and_files_do_not_matter():
    code = "    import os; assert set(os.listdir()) <= {'x'}; open('x', 'w').write('x'); print('x' * 10**7)\n"
    assert await statuses(code + "    high, low = max(levels), min(levels)\n") == ["passed"]


@pytest.mark.parametrize(
    ("metadata", "error"), [(None, "no verifier_metadata"), ({"task_id": "x"}, "'x'"), ({"task_id": [1]}, "1")]
)
async def test_an_unknown_task_earns_nothing_and_says_why(metadata, error):
    async with Harness(CodeFim, OPTIONS) as env:
        verdict = await env.verify({**prompt("q"), "verifier_metadata": metadata}, block("x"))
    assert verdict.reward == 0.0
    assert error in verdict.fields["metadata"]["error"]


@pytest.mark.parametrize("options", [{"split": "other"}, {"split": "multi_line"}, {"problems": "missing.jsonl"}])
async def test_a_task_set_that_is_not_there_is_refused(options):
    with pytest.raises(gymq.OptionsError, match=r"split|problems"):
        async with Harness(CodeFim, options):
            pass


@pytest.mark.parametrize("content", ["", "{}", '{"task_id": "a"}\n', "\x1f\x8b"])
async def test_a_file_that_is_no_task_set_is_refused(content, tmp_path):
    path = tmp_path / "problems.jsonl.gz"
    path.write_text(content)
    with pytest.raises(gymq.OptionsError, match=r"problems\.jsonl\.gz"):
        async with Harness(CodeFim, {"problems": str(path)}):
            pass


async def test_a_sandbox_that_fails_is_no_reward():
    async with Harness(CodeFim, OPTIONS) as env:

        async def fail(*_):
            raise ComponentFailed("no more processes")

        env.author.sandbox.run = fail  # type: ignore[method-assign]
        with pytest.raises(gymq.RolloutError) as raised:
            await env.verify(EXAMPLES[0], block("x"))
    assert raised.value.failure_class == gymq.FailureClass.COMPONENT_FAILED


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\r\n  a\r\n```", "\n  a\n"),
        ("```python\na\n```</think>```python\nb\n```", "\nb\n"),
        ("</think>```python\na\n```</think>", "\na\n"),
        ("```python\na\n```</think>", None),
        ("a", None),
    ],
)
def test_the_last_block_after_the_thoughts_is_read(text, code):
    assert extract_code(text) == code


@pytest.mark.parametrize(
    ("code", "prefix", "suffix", "completion"),
    [
        ("\n\nx\n", "", "", "\nx\n"),
        ("\ndef f():\n    x\n    y\n", "def f():\n", "    y\n", "    x\n"),
        ("\n    x\n", "def f():\n    ", "    y\n", "    x\n"),
        ("a", "return a", "", ""),
        ("  x", "a  ", "", "  x"),
        ("x\n  ", "", "\n  y", "x"),
        ("aa", "aaa", "a", ""),
        ("x", "", "xx", ""),
    ],
)
def test_what_repeats_the_text_around_is_cut(code, prefix, suffix, completion):
    assert completion_of(code, prefix, suffix) == completion


def test_a_long_reply_is_cut_quickly():
    assert completion_of("a" * 1_000_000, "a" * 2000, "a" * 2000) == "a" * 996_000
