"""Where gymq is installed as a package, no program finds the code or the data of workers, and so no answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# One argument: the isolation. Prints what the tool answers to each piece of code.
ASK_NEWTON = """
import asyncio, json, sys
from gymq.failures import ComponentFailed
from gymq.sandbox import LocalSandbox
from gymq.testing import Harness, prompt
from gymq.workers.resources.newton_bench.worker import NewtonBench

isolation, *codes = sys.argv[1:]
ROW = {**prompt("q"), "module_name": "m0_gravity", "difficulty": "easy", "system": "vanilla_equation",
       "law_version": "v0", "noise_level": 0}
OPTIONS = {"judge_model_server": {"type": "responses_api_models", "name": "judge"}, "sandbox": {"isolation": isolation}}

async def main():
    try:
        await LocalSandbox(isolation=isolation).start()
    except ComponentFailed as error:
        return json.dumps({"missing": error.message})
    async with Harness(NewtonBench, OPTIONS) as env:
        session = await env.session(ROW)
        return json.dumps([(await session.call("execute_python", {"code": code})).output for code in codes])

print(asyncio.run(main()))
"""

LAW = "mass1 * mass2"
IMPORT = """
import importlib
m = importlib.import_module('gymq.workers.resources.newton_bench.laws').MODULES['m0_gravity']
print(m.formula('easy', 'v0'))
"""
# Whatever is readable, wherever it is: a file of the worker's code, of gymq's, of rows with their answers.
SEARCH = """
import importlib
walk = importlib.import_module('os').walk
path = importlib.import_module('pathlib').Path
found = []
for start in STARTS:
    for folder, _, names in walk(start):
        for name in names:
            if name in ('laws.py', 'resources_runner.py', 'example.jsonl', 'answers.txt', 'my_env.py'):
                file = path(folder) / name
                try:
                    if file.read_bytes():
                        found.append(str(file))
                except OSError:
                    pass
print(found)
"""


@pytest.fixture(scope="module", params=["site", "in_project"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds gymq as its wheel would: in a folder of its own, or in a project's."""
    project = tmp_path_factory.mktemp("project")
    (project / "data").mkdir()
    (project / "data" / "answers.txt").write_text("42\n")
    folder = project if request.param == "in_project" else tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for source, target in (("gymq", "gymq"), ("workers", "gymq/workers")):
        ignored = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(ROOT / source, site / target, ignore=ignored, dirs_exist_ok=True)
    # Everything else comes from here, where gymq may be installed too.
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    # A package of somebody else that offers an environment.
    (site / "my_env.py").write_text("ANSWERS = [42]\n")
    facts = site / "my_env-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-env\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[gymq.resources]\nmine = my_env\n")
    return folder / "bin" / "python"


def ask(python: Path, isolation: str, *codes: str) -> list[dict[str, Any]]:
    command = [str(python), "-P", "-c", ASK_NEWTON, isolation, *codes]
    done = subprocess.run(command, cwd=python.parents[1], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    if isinstance(answers, dict):
        pytest.skip(answers["missing"])
    return [json.loads(answer) if isinstance(answer, str) else answer for answer in answers]


@pytest.mark.parametrize("isolation", ["namespaces", "bubblewrap"])
def test_the_tool_of_newton_bench_cannot_read_the_law(installed: Path, isolation: str):
    search = SEARCH.replace("STARTS", repr(["/", str(installed.parents[1]), str(ROOT)]))
    numpy, imported, found = ask(installed, isolation, "print(np.arange(3).sum())", IMPORT, search)
    assert numpy["stdout"] == "3\n", numpy  # the libraries of the environment are there
    assert not imported["success"]
    assert "No module named" in imported["error_message"]
    assert LAW not in str(imported)
    assert found["stdout"] == "[]\n", found


def test_outside_of_a_sandbox_the_same_code_reads_the_law(installed: Path):
    done = subprocess.run([installed, "-P", "-c", IMPORT], capture_output=True, text=True, timeout=600, check=True)
    assert LAW in done.stdout
