import json
from pathlib import Path

import pytest

import gymq
from gymq.sandbox import SandboxFailed
from gymq.testing import Harness, reply
from workers.resources.swerl_gen.edits import Void, edits_in, patch_of, solution_of
from workers.resources.swerl_gen.grading import resolution_of
from workers.resources.swerl_gen.logs import statuses_in
from workers.resources.swerl_gen.reproduction import new_file_patch, script_in
from workers.resources.swerl_gen.worker import SwerlGen

DATA = Path(__file__).parents[1] / "data"
ROWS = [json.loads(line) for line in (DATA / "example.jsonl").open()]
OPTIONS = {"images_folder": str(DATA / "images")}


def edit(path: str, search: str, replacement: str) -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```"


def solution(*edits: tuple[str, str, str]) -> dict:
    return reply("<solution>\n" + "\n".join(edit(*one) for one in edits) + "\n</solution>")


REPAIR_CIRCLE = ("shapes/areas.py", "    return math.pi * radius", "    return math.pi * radius**2")
REPAIR_NAMES = (
    "shapes/texts.py",
    '    return "".join(word[0] for word in name.split(" "))',
    '    return "".join(word[0] for word in name.split())',
)


async def verify(row: dict, response: dict, **options) -> gymq.Verdict:
    async with Harness(SwerlGen, OPTIONS | options) as env:
        return await env.verify(row, response)


@pytest.mark.parametrize(
    ("number", "edits", "reward", "resolution"),
    [
        (0, [REPAIR_CIRCLE], 1.0, "RESOLVED_FULL"),
        (1, [REPAIR_NAMES], 1.0, "RESOLVED_FULL"),
        (2, [REPAIR_CIRCLE, REPAIR_NAMES], 1.0, "RESOLVED_FULL"),
        (2, [REPAIR_CIRCLE], 0.2, "RESOLVED_PARTIAL"),
        (0, [("shapes/areas.py", "    return math.pi * radius", "    return 7")], 0.0, "RESOLVED_NO"),
        (0, [REPAIR_CIRCLE, ("shapes/areas.py", "    return side * side", "    return 7")], 0.0, "RESOLVED_NO"),
    ],
)
async def test_the_tests_of_the_patched_repository_decide(number, edits, reward, resolution):
    verdict = await verify(ROWS[number], solution(*edits))
    assert verdict.reward == reward
    assert verdict.members["verification_result"]["resolution"] == resolution


@pytest.mark.parametrize(
    ("script", "reward", "codes"),
    [
        ("import sys\nfrom shapes.areas import circle\nsys.exit(2 if circle(2) < 7 else 0)", 1.0, ([2], [0])),
        ("import sys\nsys.exit(2)", 0.0, ([2], [2])),
        ("1 / 0", 0.0, ([1], [1])),
    ],
)
async def test_a_script_runs_before_and_after_the_reference_patch(script, reward, codes):
    verdict = await verify(ROWS[3], reply(f"```python\n{script}\n```"))
    result = verdict.members["verification_result"]
    assert verdict.reward == reward
    assert (result["return_codes_before_patch"], result["return_codes_after_patch"]) == codes


async def test_one_run_leaves_nothing_for_the_next():
    await verify(ROWS[0], solution(REPAIR_CIRCLE))
    assert "radius**2" not in (DATA / "images" / "shapes" / "shapes" / "areas.py").read_text()


async def test_tests_that_never_end_are_a_timeout_and_zero():
    slow = {**ROWS[0], "instance": ROWS[0]["instance"] | {"test_script": "sleep 1000"}}
    verdict = await verify(slow, solution(REPAIR_CIRCLE), sandbox_timeout=2)
    assert (verdict.reward, verdict.members["verification_result"]["status"]) == (0.0, "timeout")


async def test_an_instance_may_bring_its_own_parser():
    own = {
        "run_script.sh": "python3 run_checks.py | sed s/PASSED/fine/",
        "parsing_script.py": "import json, sys\n"
        "lines = [line.split() for line in open(sys.argv[1])]\n"
        "tests = [{'name': name, 'status': 'PASSED' if word == 'fine' else 'FAILED'} for word, name in lines]\n"
        "json.dump({'tests': tests}, open(sys.argv[3], 'w'))",
    }
    row = {**ROWS[0], "instance": ROWS[0]["instance"] | own}
    assert (await verify(row, solution(REPAIR_CIRCLE))).reward == 1.0


async def test_a_sandbox_without_images_is_a_failure_and_no_zero():
    async with Harness(SwerlGen) as env:
        with pytest.raises(SandboxFailed, match="docker"):
            await env.verify(ROWS[0], solution(REPAIR_CIRCLE))


@pytest.mark.parametrize("image", ["../..", "/etc", "none"])
async def test_an_image_outside_of_the_folder_is_refused(image):
    row = {**ROWS[0], "metadata": ROWS[0]["metadata"] | {"image": image}}
    with pytest.raises(gymq.InvalidTask, match="no folder"):
        await verify(row, solution(REPAIR_CIRCLE))


async def test_an_unknown_mode_is_refused():
    with pytest.raises(gymq.InvalidTask, match="mode"):
        await verify({**ROWS[0], "mode": "other"}, solution(REPAIR_CIRCLE))


def test_edits_of_one_file_are_all_located_in_the_original():
    pairs = [("f", "b", "c"), ("f", "a", "b")]
    patch = patch_of("\n".join(edit(*pair) for pair in pairs), {"f": "a\nb\n"}, False)
    assert patch == "diff --git a/f b/f\n--- old\n+++ new\n@@ -1,2 +1,2 @@\n-a\n b\n+c\n"


def test_a_file_that_is_not_there_can_only_be_made():
    assert "+new" in patch_of(edit("r/new.py", "", "new"), {}, True)
    with pytest.raises(Void):
        patch_of(edit("new.py", "old", "new"), {}, False)


@pytest.mark.parametrize("search", ["b", "missing", " a"])
def test_a_search_text_has_to_begin_a_line(search):
    with pytest.raises(Void):
        patch_of(edit("f", search, "x"), {"f": "ab\n"}, False)


def test_blocks_without_a_fence_do_not_count():
    assert edits_in(edit("f", "a", "b").removesuffix("```")) == {}


@pytest.mark.parametrize(
    ("as_written", "instead"), [("\n```", "```"), ("\n```", "\n\n```"), ("### f\n", "### f\n \n"), ("```python", "```")]
)
def test_blanks_around_the_marks_of_a_block_do_not_matter(as_written, instead):
    assert edits_in(edit("f", "a", "b").replace(as_written, instead)) == {"f": [("a", "b")]}


def test_the_diffs_of_several_files_stand_in_one_patch_with_an_empty_line_between_them():
    both = edit("a", "1", "2") + edit("b", "1", "2")
    one, other = (f"diff --git a/{f} b/{f}\n--- old\n+++ new\n@@ -1 +1 @@\n-1\n+2\n" for f in "ab")
    assert patch_of(both, {"a": "1\n", "b": "1\n"}, False) == f"{one}\n{other}"


@pytest.mark.parametrize("missing", ["remove_repo_name", "relevant_file_contents"])
async def test_without_the_files_an_answer_cannot_be_applied(missing):
    metadata = {name: value for name, value in ROWS[0]["metadata"].items() if name != missing}
    verdict = await verify({**ROWS[0], "metadata": metadata}, solution(REPAIR_CIRCLE))
    assert (verdict.reward, verdict.members["model_patch"]) == (0.0, None)


async def test_an_empty_reply_has_no_output():
    assert (await verify(ROWS[0], reply(" "))).members["model_output"] is None


@pytest.mark.parametrize(
    ("text", "name", "script"),
    [
        ("```python\na\n```", "reproduce_bug_1.py", "a"),
        ("<think>```python\na\n```</think>```python\nb\n\n```", "reproduce_bug_2.py", "b\n"),
        ("<solution>```python\na\n```</solution>```python\nb\n```", "reproduce_bug_2.py", "b"),
        ("---\n#!/usr/bin/env python\na\n---\n#!/usr/bin/env python\nb\n---", "reproduce_bug_1.py", "\na"),
        ("-\n#!/usr/bin/env python\na\n", "reproduce_bug_1.py", "\na"),
        ("---\n#!/usr/bin/env python\n---", "reproduce_bug_1.py", ""),
    ],
)
def test_the_last_script_of_the_whole_reply_counts(text, name, script):
    assert script_in(text) == (name, script)


def test_a_patch_adds_every_line_of_a_script():
    assert new_file_patch("f", "a\r\n").endswith("\n@@ -0,0 +1,2 @@\n+a\r\n+\n")


def test_a_reply_without_a_script_is_void():
    with pytest.raises(Void):
        script_in("```\na\n```")


@pytest.mark.parametrize(
    ("text", "relaxed", "found"),
    [
        ("<solution>a</solution>b<solution>c</solution>", False, "a"),
        ("<think><solution>a</solution></think><solution>b</solution>", False, "b"),
        ("plain", True, "plain"),
        ("plain", False, None),
        ("<think><solution>a</solution></think>", False, None),
        ("<think></solution></think><solution>a", False, "a"),
        ("<think><solution>a</solution></think>plain", True, "plain"),
        ("<solution>a", False, None),
    ],
)
def test_the_solution_is_read_after_the_thoughts(text, relaxed, found):
    if found is None:
        with pytest.raises(Void):
            solution_of(text, relaxed)
    else:
        assert solution_of(text, relaxed) == found


@pytest.mark.parametrize(
    ("repository", "log", "statuses"),
    [
        (
            "a/b",
            "PASSED t.py::a - x\nt.py::b FAILED [ 50%]\nERROR t.py::c[/x/y/z]\nPASSED\nPASSEDX t\nt[/x/y-/z] PASSED",
            {"t.py::a": "PASSED", "t.py::b": "FAILED", "t.py::c[/z]": "ERROR", "t[/x/y-/z]": "PASSED"},
        ),
        (
            "django/django",
            "test_a (m.T) ... ok\ntest_b (m.T) ... skipped 'x'\nFAIL: test_c (m.T)\nt ... \nok",
            {"test_a (m.T)": "PASSED", "test_b (m.T)": "SKIPPED", "test_c": "FAILED", "t": "PASSED"},
        ),
        (
            "sympy/sympy",
            "test_a ok  [OK]\ntest_b F\ntest_c E [FAIL]\nother ok\nPASSED t.py::d\nt.py::e PASSED\nPASSED",
            {"test_a": "PASSED", "test_b": "FAILED", "test_c": "ERROR", "t.py::d": "PASSED", "t.py::e": "PASSED"},
        ),
        (
            "pytest-dev/pytest",
            "PASSED t.py::a[/x/y]\nt.py::b FAILED\nt.py::c PASSED [ 50%]",
            {"t.py::a[/x/y]": "PASSED", "t.py::b": "FAILED"},
        ),
    ],
)
def test_logs_are_read_by_repository(repository, log, statuses):
    assert statuses_in(log, repository) == statuses


@pytest.mark.parametrize(
    ("log", "resolution"),
    [
        ("applied patch x\nPASSED a\nPASSED b", "RESOLVED_FULL"),
        ("Applied patch x\nPASSED a\nSKIPPED b", "RESOLVED_FULL"),
        ("Applied patch x\nPASSED a", "RESOLVED_NO"),
        ("PASSED a\nPASSED b", "RESOLVED_NO"),
        ("applied patch x\nPASSED a\nPASSED b\nTests Timed Out", "RESOLVED_NO"),
    ],
)
def test_resolutions(log, resolution):
    assert resolution_of(log, "a/b", ["b"], ["a"]) == resolution


@pytest.mark.parametrize("base_dir", ["/tmp/../.old/tmp/x", "testbed", "", "/", "/usr", "/etc/x", "/a\0b"])
async def test_a_row_cannot_name_a_folder_of_the_system(base_dir):
    row = {**ROWS[0], "instance": ROWS[0]["instance"] | {"base_dir": base_dir}}
    with pytest.raises(gymq.InvalidTask):
        await verify(row, solution(REPAIR_CIRCLE))


async def test_an_image_with_a_nul_is_an_invalid_task():
    with pytest.raises(gymq.InvalidTask, match="NUL"):
        await verify({**ROWS[0], "metadata": ROWS[0]["metadata"] | {"image": "sha\0pes"}}, solution(REPAIR_CIRCLE))
