import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.swerl_gen.container import Containers
from gymq.workers.resources.swerl_gen.edits import Void, edited_files, edits_in, patch_of, solution_of, without_tests
from gymq.workers.resources.swerl_gen.grading import resolution_of
from gymq.workers.resources.swerl_gen.logs import statuses_in, with_failures_kept
from gymq.workers.resources.swerl_gen.reproduction import new_file_patch, script_in
from gymq.workers.resources.swerl_gen.worker import SwerlGen

import gymq
from gymq.failures import ComponentFailed
from gymq.processes import KillableProcesses
from gymq.testing import Harness, reply

DATA = Path(__file__).parents[1] / "data"
ROWS = [json.loads(line) for line in (DATA / "example.jsonl").read_text().splitlines()]
OPTIONS = {"images_folder": str(DATA / "images")}


def edit(path: str, search: str, replacement: str) -> str:
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```"


def solution(*edits: tuple[str, str, str]) -> dict[str, Any]:
    return reply("<solution>\n" + "\n".join(edit(*one) for one in edits) + "\n</solution>")


def patch(text: str, contents: dict[str, str], remove_repo_name: bool = False) -> str:
    return patch_of(edited_files(text, True, contents), contents, remove_repo_name)


REPAIR_CIRCLE = ("shapes/areas.py", "    return math.pi * radius", "    return math.pi * radius**2")
REPAIR_NAMES = (
    "shapes/texts.py",
    '    return "".join(word[0] for word in name.split(" "))',
    '    return "".join(word[0] for word in name.split())',
)


PROCESSES = KillableProcesses()


@pytest.fixture(scope="module", autouse=True)
def close_processes():
    yield
    PROCESSES.close()


async def verify(row: dict[str, Any], response: dict[str, Any], **options) -> gymq.Verdict:
    async with Harness(SwerlGen, OPTIONS | options, processes=PROCESSES) as env:
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
    assert verdict.fields["verification_result"]["resolution"] == resolution


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
    result = verdict.fields["verification_result"]
    assert verdict.reward == reward
    assert (result["return_codes_before_patch"], result["return_codes_after_patch"]) == codes


async def test_one_run_leaves_nothing_for_the_next():
    await verify(ROWS[0], solution(REPAIR_CIRCLE))
    assert "radius**2" not in (DATA / "images" / "shapes" / "shapes" / "areas.py").read_text()


async def test_tests_that_never_end_are_a_timeout_and_zero():
    slow = {**ROWS[0], "instance": ROWS[0]["instance"] | {"test_script": "sleep 1000"}}
    verdict = await verify(slow, solution(REPAIR_CIRCLE), sandbox_timeout=2)
    assert (verdict.reward, verdict.fields["verification_result"]["status"]) == (0.0, "timeout")


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
        with pytest.raises(ComponentFailed, match="docker"):
            await env.verify(ROWS[0], solution(REPAIR_CIRCLE))


@pytest.mark.parametrize("image", ["../..", "/etc", "none"])
async def test_an_image_outside_of_the_folder_is_refused(image):
    row = {**ROWS[0], "metadata": ROWS[0]["metadata"] | {"image": image}}
    with pytest.raises(gymq.InvalidTask, match=r"the folder '.*' does not exist"):
        await verify(row, solution(REPAIR_CIRCLE))


async def test_an_unknown_mode_is_refused():
    with pytest.raises(gymq.InvalidTask, match="mode"):
        await verify({**ROWS[0], "mode": "other"}, solution(REPAIR_CIRCLE))


def test_edits_of_one_file_are_all_located_in_the_original():
    pairs = [("f", "b", "c"), ("f", "a", "b")]
    found = patch("\n".join(edit(*pair) for pair in pairs), {"f": "a\nb\n"})
    assert found == "diff --git a/f b/f\n--- old\n+++ new\n@@ -1,2 +1,2 @@\n-a\n b\n+c\n"


def test_a_file_that_is_not_there_can_only_be_made():
    assert "b/new.py\n" in patch(edit("r/new.py", "", "new"), {}, True)
    with pytest.raises(Void):
        patch(edit("new.py", "old", "new"), {})


@pytest.mark.parametrize("search", ["b", "missing", " a"])
def test_a_search_text_has_to_begin_a_line(search):
    with pytest.raises(Void):
        patch(edit("f", search, "x"), {"f": "ab\n"})


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
    assert patch(both, {"a": "1\n", "b": "1\n"}) == f"{one}\n{other}"


@pytest.mark.parametrize("missing", ["remove_repo_name", "relevant_file_contents"])
async def test_without_the_files_an_answer_cannot_be_applied(missing):
    metadata = {name: value for name, value in ROWS[0]["metadata"].items() if name != missing}
    verdict = await verify({**ROWS[0], "metadata": metadata}, solution(REPAIR_CIRCLE))
    assert (verdict.reward, verdict.fields["model_patch"]) == (0.0, None)


async def test_an_empty_reply_has_no_output():
    assert (await verify(ROWS[0], reply(" "))).fields["model_output"] is None


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
    assert statuses_in(log, repository, with_failures_kept) == statuses


@pytest.mark.parametrize(
    ("log", "resolution"),
    [
        ("applied patch x\nPASSED a\nPASSED b", "RESOLVED_FULL"),
        ("Applied patch x\nSKIPPED a\nPASSED b", "RESOLVED_FULL"),
        ("Applied patch x\nPASSED a\nSKIPPED b", "RESOLVED_NO"),
        ("Applied patch x\nPASSED a", "RESOLVED_NO"),
        ("PASSED a\nPASSED b", "RESOLVED_NO"),
        ("applied patch x\nPASSED a\nPASSED b\nTests Timed Out", "RESOLVED_NO"),
    ],
)
def test_resolutions(log, resolution):
    assert resolution_of(log, "a/b", ["b"], ["a"]) == resolution


SKIPS = "    import unittest\n    raise unittest.SkipTest"
CHECKED_BY_UNITTEST = """cd /testbed
cat > test_it.py <<'END'
import unittest
import code_
class Case(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(code_.answer(), 7)
END
python3 -m unittest -v test_it 2>&1 | sed -n "s/^test_answer.* ok$/PASSED t/p; s/^test_answer.* skipped.*/SKIPPED t/p"
"""


@pytest.mark.parametrize(("hardened", "reward"), [(True, 0.0), (False, 1.0)])
async def test_code_that_skips_the_test_is_not_a_repair(tmp_path, hardened, reward):
    content = "def answer():\n    return 6\n"
    options = repository(tmp_path, {"code_.py": content.encode()})
    row = row_over({"code_.py": content}, CHECKED_BY_UNITTEST)
    verdict = await verify(row, solution(("code_.py", "    return 6", SKIPS)), hardened=hardened, **options)
    assert verdict.reward == reward, verdict.fields
    assert (await verify(row, solution(("code_.py", "    return 6", "    return 7")), **options)).reward == 1.0


@pytest.mark.parametrize("base_dir", ["/tmp/../.old/tmp/x", "testbed", "", "/", "/usr", "/etc/x", "/a\0b"])
async def test_a_row_cannot_name_a_folder_of_the_system(base_dir):
    row = {**ROWS[0], "instance": ROWS[0]["instance"] | {"base_dir": base_dir}}
    with pytest.raises(gymq.InvalidTask):
        await verify(row, solution(REPAIR_CIRCLE))


async def test_an_image_with_a_nul_is_an_invalid_task():
    with pytest.raises(gymq.InvalidTask, match="NUL"):
        await verify({**ROWS[0], "metadata": ROWS[0]["metadata"] | {"image": "sha\0pes"}}, solution(REPAIR_CIRCLE))


def repository(folder: Path, files: dict[str, bytes]) -> dict[str, Any]:
    """A repository with these files whose check imports `code` and prints a status, as an image."""
    for name, content in files.items():
        (folder / "image" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "image" / name).write_bytes(content)
    return {"images_folder": str(folder)}


def row_over(contents: dict[str, str], test_script: str, mode: str = "eval", patch: str = "") -> dict[str, Any]:
    instance = {"repo": "a/b", "test_script": test_script, "FAIL_TO_PASS": ["t"], "PASS_TO_PASS": [], "patch": patch}
    metadata = {"relevant_file_contents": json.dumps(contents), "remove_repo_name": False, "image": "image"}
    return {**ROWS[0], "mode": mode, "instance": instance, "metadata": metadata}


ANSWER_IS_7 = "cd /testbed && python3 -c 'import code_; assert code_.answer() == 7' && echo PASSED t || echo FAILED t"


@pytest.mark.parametrize(
    "content",
    [
        b"def answer():\n    return 6",
        b"def answer():\r\n    return 6\r\n",
        b"x = 1\n\x0c\ndef answer():\n    return 6\n",
        "x = '\u2028'\ndef answer():\n    return 6\n".encode(),
        b"def answer():\r    return 6\r",
        "def answer():\n    '\u00e4'\n    return 6".encode(),
    ],
)
async def test_files_are_edited_however_their_lines_end(tmp_path, content):
    options = repository(tmp_path, {"code_.py": content})
    row = row_over({"code_.py": content.decode()}, ANSWER_IS_7)
    old = "    return 6" if b"\r    " not in content else "def answer():\r    return 6\r"
    verdict = await verify(row, solution(("code_.py", old, old.replace("6", "7"))), **options)
    assert verdict.reward == 1.0, verdict.fields


@pytest.mark.parametrize("name", ["code_.py", "deep/er/code_.py"])
async def test_an_empty_search_text_makes_a_file(tmp_path, name):
    options = repository(tmp_path, {"other.py": b""})
    script = ANSWER_IS_7.replace("cd /testbed", f"cd /testbed/{name.removesuffix('code_.py')}")
    verdict = await verify(row_over({}, script), solution((name, "", "def answer():\n    return 7")), **options)
    assert verdict.reward == 1.0, verdict.fields


@pytest.mark.parametrize("path", ["../o.py", "/tmp/o.py", "a/../../o.py", ".git/hooks/x", "./x.py", "a//b.py", ""])
async def test_files_outside_of_the_repository_are_not_written(tmp_path, path):
    options = repository(tmp_path, {"code_.py": b""})
    verdict = await verify(row_over({}, "echo PASSED t"), solution((path, "", "x")), **options)
    assert verdict.reward == 0.0


async def test_a_file_that_cannot_be_written_is_no_patch(tmp_path):
    options = repository(tmp_path, {"folder/code_.py": b""})
    verdict = await verify(row_over({}, "echo PASSED t"), solution(("folder", "", "x")), **options)
    assert verdict.fields["verification_result"]["resolution"] == "RESOLVED_NO"


FINDS_NOTHING = """
import glob, os
found = glob.glob('/tmp/box/*') + glob.glob('/tmp/box/.*')
for entry in glob.glob(f'/proc/{os.getppid()}/fd/*') + glob.glob('/proc/self/fd/*'):
    target = os.path.realpath(entry)
    found += [target] if 'box' in target else []
"""


async def test_code_under_test_finds_no_script_patch_or_parser(tmp_path):
    content = f"def answer():\n    return 6\n{FINDS_NOTHING}\nassert not found, found\n"
    options = repository(tmp_path, {"code_.py": content.encode()})
    row = row_over({"code_.py": content}, ANSWER_IS_7)
    verdict = await verify(row, solution(("code_.py", "    return 6", "    return 7")), **options)
    assert verdict.reward == 1.0, verdict.fields


OWN_PARSER = (
    "import json, sys\n"
    "passed = 'fine' in open(sys.argv[1]).read() and 'said' in open(sys.argv[2]).read()\n"
    "json.dump({'tests': [{'name': 't', 'status': 'PASSED' if passed else 'FAILED'}]}, open(sys.argv[3], 'w'))"
)
OVERWRITES = """
import glob
for name in glob.glob('/tmp/box/*') + ['/tmp/box/own_parser.py', '/tmp/box/run.sh', '/tmp/box/tests.sh']:
    with open(name, 'w') as file:
        file.write('import json, sys\\n'
                   'tests = [{"name": "t", "status": "PASSED"}]\\n'
                   'json.dump({"tests": tests}, open(sys.argv[3], "w"))')
"""


@pytest.mark.parametrize(("answer", "reward"), [("return 7", 1.0), (f"return 6\n{OVERWRITES}", 0.0)])
async def test_the_own_parser_is_out_of_reach_of_the_code_under_test(tmp_path, answer, reward):
    content = "def answer():\n    return 6\n"
    options = repository(tmp_path, {"code_.py": content.encode()})
    row = row_over({"code_.py": content}, "")
    script = 'python3 -c \'import code_; print("fine" if code_.answer() == 7 else "bad")\'; echo said >&2'
    row["instance"] |= {"run_script.sh": script, "parsing_script.py": OWN_PARSER}
    verdict = await verify(row, solution(("code_.py", "    return 6", f"    {answer}")), **options)
    assert verdict.reward == reward, verdict.fields


async def test_a_script_that_changes_while_it_runs_is_run_as_it_was(tmp_path):
    content = "def answer():\n    return 6\n"
    options = repository(tmp_path, {"code_.py": content.encode()})
    hack = "import glob\nfor n in glob.glob('/tmp/box/*') + glob.glob('/proc/*/fd/255') + glob.glob('/proc/*/fd/3'):\n"
    hack += "    try: open(n, 'a').write('\\necho PASSED t\\n')\n    except OSError: pass\n"
    row = row_over({"code_.py": content}, ANSWER_IS_7)
    verdict = await verify(row, solution(("code_.py", "    return 6", f"    return 6\n{hack}")), **options)
    assert verdict.reward == 0.0


ALL_PASS = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    report = (yield).get_result()
    report.outcome = "passed"
"""
# Without the plugins of this environment, which take a second to import.
CHECKED_BY_PYTEST = (
    f"cd /testbed; PYTHONPATH=. {sys.executable} -m pytest -rA -p no:cacheprovider -p no:asyncio -p no:anyio "
    "-p no:hypothesispytest -p no:xdist -p no:xdist.looponfail test_it.py"
)

ALL_PASS_MODULE = ("all_pass.py", "", ALL_PASS)
HACKS = {
    "conftest": [("conftest.py", "", ALL_PASS)],
    "the test itself": [("test_it.py", "", "def test_it():\n    assert 'another test'")],
    "configuration": [ALL_PASS_MODULE, ("pytest.toml", "", '[pytest]\naddopts = ["-p", "all_pass"]\n')],
    "entry point": [
        ALL_PASS_MODULE,
        ("a.egg-info/entry_points.txt", "", "[pytest11]\nall_pass = all_pass\n"),
        ("a.egg-info/PKG-INFO", "", "Metadata-Version: 2.1\nName: a\nVersion: 1\n"),
    ],
    "startup": [
        ALL_PASS_MODULE,
        ("sitecustomize/__init__.py", "", "import os\nos.environ['PYTEST_PLUGINS'] = 'all_pass'"),
    ],
    "pytest": [("pytest/__init__.py", "", "x = 1"), ("pytest/__main__.py", "", "print('PASSED test_it.py::test_it')")],
}


AT_NIGHT = {"configuration", "entry point"}  # `OF_TESTS` has files of their kind


@pytest.mark.parametrize(
    "hack", [pytest.param(hack, marks=[pytest.mark.nightly] if hack in AT_NIGHT else []) for hack in HACKS]
)
async def test_a_reply_changes_no_test_and_not_how_tests_are_run(tmp_path, hack):
    content = "def answer():\n    return 6\n"
    checks = "import code_\ndef test_it():\n    assert code_.answer() == 7\n"
    options = repository(tmp_path, {"code_.py": content.encode(), "test_it.py": checks.encode()})
    row = row_over({"code_.py": content}, CHECKED_BY_PYTEST)
    row["instance"]["FAIL_TO_PASS"] = ["test_it.py::test_it"]
    wrong, right = (("code_.py", "    return 6", f"    return {number}") for number in (8, 7))
    for hardened, reward in ((True, 0.0), (False, 1.0)):
        hacked = await verify(row, solution(*HACKS[hack], wrong), hardened=hardened, **options)
        assert hacked.reward == reward, hacked.fields
    assert (await verify(row, solution(*HACKS[hack], right), **options)).reward == 1.0


OF_TESTS = [
    "tests/a.py",
    "a/test_b.py",
    "a/b_test.py",
    "a/conftest.py",
    "a/x.pth",
    "pytest.ini",
    ".pytest.toml",
    "setup.py",
]
OF_TESTS += [
    "bin/test",
    "a/runtests.py",
    "a/pluggy.py",
    "_pytest/__init__.py",
    "a.dist-info/entry_points.txt",
    ".coveragerc",
]


@pytest.mark.parametrize("path", OF_TESTS)
def test_files_of_tests_are_left_out_unless_the_row_shows_them(path):
    files = {path: "new", "latest_news.py": "new", "a/testing/b.py": "new", "a/__init__.py": "new"}
    assert set(without_tests(files, {})) == set(files) - {path}
    assert without_tests(files, {path: "old"}) == files
    with pytest.raises(Void):
        without_tests({path: "new"}, {})


PRINTS_AT_EXIT = "    return 6\nimport atexit\natexit.register(print, 'PASSED t', flush=True)"
CHECKED_THEN_EXIT = """cd /testbed
python3 -c 'import code_; print("PASSED t" if code_.answer() == 7 else "FAILED t")'
"""


@pytest.mark.parametrize(("hardened", "reward"), [(True, 0.0), (False, 1.0)])
async def test_a_failure_is_not_undone_by_a_later_line(tmp_path, hardened, reward):
    content = "def answer():\n    return 6\n"
    options = repository(tmp_path, {"code_.py": content.encode()})
    row = row_over({"code_.py": content}, CHECKED_THEN_EXIT)
    verdict = await verify(row, solution(("code_.py", "    return 6", PRINTS_AT_EXIT)), hardened=hardened, **options)
    assert verdict.reward == reward


@pytest.mark.parametrize(("merged", "status"), [(with_failures_kept, "FAILED"), (dict, "PASSED")])
@pytest.mark.parametrize("later", ["test_a (m.T) ... ok", "ok"])
def test_a_failure_in_a_log_of_django_is_not_undone_by_a_later_line(later, merged, status):
    log = f"test_b (m.T) ... ok\ntest_a (m.T) ... FAIL\n{later}\n"
    assert statuses_in(log, "django/django", merged)["test_a (m.T)"] == status


REFERENCE = """diff --git a/code_.py b/code_.py
--- a/code_.py
+++ b/code_.py
@@ -1,2 +1,2 @@
 def answer():
-    return 6
+    return 7
"""


@pytest.mark.parametrize(
    ("script", "peer"),
    [
        ("import os\nsolved = any('patch' in name or 'decoy' in name for name in os.listdir('/tmp/box'))", 0.0),
        ("import subprocess as s\nsolved = s.run(['git', 'diff', '--quiet']).returncode == 1", 1.0),
        ("import subprocess as s\nsolved = b'code_' in s.run(['git', 'status', '-s'], stdout=-1).stdout", 1.0),
        ("solved = '    return 6' not in open('code_.py').read()", 1.0),
        ("solved = '    return 6\\n' not in list(open('code_.py'))", 1.0),
        ("solved = '    return 7\\n' in list(open('code_.py'))", 1.0),
        ("import os\nsolved = os.stat('code_.py').st_mtime != os.stat('old.py').st_mtime", 1.0),
        ("import os\nsolved = os.path.exists('__pycache__/m')", 0.0),
    ],
)
def test_a_script_cannot_ask_for_the_reference_patch(tmp_path, script, peer):
    files = {"code_.py": b"def answer():\n    return 6\n", "old.py": b"", "__pycache__/m": b"code"}
    options = repository(tmp_path, files)
    image = tmp_path / "image"
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
        subprocess.run(["git", *command.split()], cwd=image, check=True)
    for path in image.glob("*.py"):
        os.utime(path, (0, 0))
    row = row_over({}, "", "repro-gen", REFERENCE)
    row["instance"]["regression_script"] = "git config --global --add safe.directory '*'"
    answer = reply(f"```python\n{script}\nimport sys\nsys.exit(0 if solved else 2)\n```")
    assert asyncio.run(verify(row, answer, **options)).reward == 0.0
    assert asyncio.run(verify(row, answer, hardened=False, **options)).reward == peer


@pytest.mark.parametrize("hardened", [True, False])
async def test_a_script_that_runs_the_code_is_paid(tmp_path, hardened):
    files = {"code_.py": b"def answer():\n    return 6\n", "a b/sub.py": b"x = 1", "run.sh": b"true"}
    options = repository(tmp_path, files)
    (tmp_path / "image" / "run.sh").chmod(0o755)
    (tmp_path / "image" / "link.py").symlink_to("a b/sub.py")
    script = "import os, sys\nimport code_, link\nassert os.access('run.sh', os.X_OK) and os.path.islink('link.py')\n"
    script += "sys.exit(0 if code_.answer() == 7 else 2)"
    row = row_over({}, "", "repro-gen", REFERENCE)
    assert (await verify(row, reply(f"```python\n{script}\n```"), hardened=hardened, **options)).reward == 1.0


async def test_a_script_that_guesses_is_found_out(tmp_path, monkeypatch):
    options = repository(tmp_path, {"code_.py": b"def answer():\n    return 6\n"})
    row = row_over({}, "", "repro-gen", REFERENCE)
    tosses = reply("```python\nimport random, sys\nsys.exit(random.choice([0, 2]))\n```")
    lucky = [2, 0, 2, 0]
    codes: list[int] = []

    async def exit_code(_self, _instance, _image, _name, _script, solved):
        codes.append(lucky[len(codes)] if len(codes) < len(lucky) else 2)
        return codes[-1]

    orders = iter([False, True, True])
    monkeypatch.setattr(random, "choice", lambda _choices: next(orders))
    monkeypatch.setattr(Containers, "exit_code", exit_code)
    verdict = await verify(row, tosses, **options)
    result = verdict.fields["verification_result"]
    assert (verdict.reward, result["return_codes_before_patch"], result["return_codes_after_patch"]) == (
        0.0,
        [2],
        [0, 2],
    )
    codes.clear()
    assert (await verify(row, tosses, hardened=False, **options)).reward == 1.0
