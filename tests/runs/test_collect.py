"""`gymq.collect` in a script and in a notebook, with a class that no file can be loaded for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = '''
import json
import os

import gymq


class Row(gymq.Row):
    answer: str


class Mine(gymq.Verdict):
    """A class of the program itself, which a process sends back."""


class Capitals(gymq.Resources[Row]):
    """`verify_in_process` runs in a process, which gets the class by value."""

    @gymq.tool
    async def look_up(self, country: str) -> str:
        """Look a capital up."""
        return "Bern"

    def verify_in_process(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
        if request.row.answer == "?":
            raise gymq.InvalidTask("nobody knows the answer")
        return Mine(request.row.answer in request.reply_text, elsewhere=os.getpid() != PID)


PID = os.getpid()
ROWS = [
    {"prompt": "Capital of Switzerland?", "answer": "Bern"},
    {"input": [{"role": "user", "content": "Of France?"}], "answer": "Paris"},
    {"prompt": "<script>alert(1)</script>", "answer": "?"},
]


def model(params):
    return "It is Bern. <b>bold</b>"
'''

# No `if __name__ == "__main__"`: a process that imported this again would collect once more.
SCRIPT = f"""{ENVIRONMENT}
print("started")
run = gymq.collect(Capitals, ROWS, model=model, repeats=2, progress=False)
frame = run.to_pandas()
print(json.dumps({{
    "repr": repr(run),
    "html": run._repr_html_(),
    "reward": run.reward.value,
    "pass": {{k: estimate.value for k, estimate in run.pass_at_k.items()}},
    "failures": [list(group) for group in run.failures],
    "rollouts": list(run.rollouts),
    "columns": list(frame.columns),
    "frame": json.loads(frame.to_json(orient="records")),
    "path": str(run.path),
}}))
"""

# What a notebook does: its cells are executed in a namespace of their own, while its loop runs.
NOTEBOOK = f"""
import ast
import asyncio
import inspect
import json

CELLS = [{ENVIRONMENT!r}, '''
async def answer(params):
    return "It is Bern."

waited = gymq.collect(Capitals, ROWS, model=answer, output="waited.jsonl", progress=False)
''', '''
import asyncio

def begin(output):
    return gymq.acollect(Capitals, ROWS[:1], model=answer, output=output, progress=False)

awaited, beside = await asyncio.gather(begin("awaited.jsonl"), begin("beside.jsonl"))
''']


async def notebook():
    namespace = {{"__name__": "__main__"}}
    for cell in CELLS:
        done = eval(compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
        if inspect.isawaitable(done):
            await done
    return [namespace[name].reward.value for name in ("waited", "awaited", "beside")]


print(json.dumps(asyncio.run(notebook())))
"""


def run(source: str, folder: Path) -> list[str]:
    """Run a program in a folder; the lines that it prints."""
    file = folder / "program.py"
    file.write_text(source)
    environment = {name: value for name, value in os.environ.items() if name != "GYMQ_NATS"}
    done = subprocess.run(
        [sys.executable, str(file)], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("script")


@pytest.fixture(scope="module")
def printed(folder):
    return run(SCRIPT, folder)


@pytest.fixture
def found(printed):
    return json.loads(printed[-1])


def test_a_script_runs_once_although_its_verifier_runs_in_processes(printed, found):
    assert printed[:-1] == ["started"]
    assert [rollout["elsewhere"] for rollout in found["rollouts"]] == [True] * 4


def test_the_result_has_reward_pass_at_k_and_failures(found):
    assert found["reward"] == 0.5
    assert found["pass"] == {"1": 50.0, "2": 50.0}
    ((failure_class, count, message, *_),) = found["failures"]
    assert (failure_class, count) == ("invalid_task", 2)
    assert "nobody knows the answer" in message


def test_the_output_has_a_default_in_the_folder_runs(found):
    assert found["path"] == "runs/Capitals-rows-model.jsonl"
    assert found["repr"].startswith("RunResult('runs/Capitals-rows-model.jsonl', rollouts=4, reward=0.500 [")
    assert found["repr"].endswith("failed=2)")


def test_the_files_of_a_run_are_for_their_owner_alone(folder, printed):
    files = [*(folder / "runs").iterdir()]
    assert len(files) >= 4
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in files} == {file.name: "0o600" for file in files}


def test_rollouts_hold_the_tools_that_the_model_was_offered(found):
    for rollout in found["rollouts"]:
        (tool,) = rollout["responses_create_params"]["tools"]
        assert (tool["name"], tool["description"]) == ("look_up", "Look a capital up.")


def test_a_verifier_that_blocks_the_loop_of_the_program_fails_with_its_place(tmp_path):
    *_, printed = run(
        """
import re

import gymq


class Row(gymq.Row):
    blocks: bool


class Blocking(gymq.Resources[Row]):
    async def verify(self, request):
        if request.row.blocks:
            re.match(r"(a+)+$", "a" * 60 + "b")
        return 1.0


rows = [{"prompt": str(number), "blocks": number == 1} for number in range(3)]
result = gymq.collect(Blocking, rows, model=lambda params: "x", progress=False)
print(len(list(result.rollouts)), [failure.message for failure in result.failures])
""",
        tmp_path,
    )
    assert printed.startswith("2 ['Blocking: verify blocked the event loop of its process for ")
    assert f"at {tmp_path / 'program.py'}:14: re.match(" in printed


def test_a_data_frame_has_plain_columns_and_a_line_for_each_rollout(found):
    first = ["task", "rollout", "prompt", "reply", "expected", "reward", "failure", "failure_message"]
    assert found["columns"][:8] == first
    lines = found["frame"]
    assert [(line["task"], line["rollout"]) for line in lines] == [(t, r) for t in range(3) for r in range(2)]
    assert [line["expected"] for line in lines] == ["Bern"] * 2 + ["Paris"] * 2 + ["?"] * 2
    assert [line["prompt"] for line in lines[::2]] == [
        "Capital of Switzerland?",
        "Of France?",
        "<script>alert(1)</script>",
    ]
    assert {line["reply"] for line in lines} == {"It is Bern. <b>bold</b>"}
    assert [line["reward"] for line in lines] == [1.0, 1.0, 0.0, 0.0, None, None]
    assert [line["failure"] for line in lines] == [None] * 4 + ["invalid_task"] * 2


def test_what_a_model_said_is_text_in_a_notebook_and_never_markup(found):
    assert "&lt;b&gt;bold&lt;/b&gt;" in found["html"]
    assert "<b>bold" not in found["html"]
    assert "<script" not in found["html"]
    assert "invalid_task" in found["html"]


@pytest.mark.nightly
def test_a_notebook_may_wait_or_await_or_gather_although_its_loop_runs(tmp_path):
    assert json.loads(run(NOTEBOOK, tmp_path)[-1]) == [0.5, 1.0, 1.0]
