"""gymq test: it finds what is wrong with a worker, and says where."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from gymq.execution.loading.worker_source import find_worker
from gymq.ext.workbench import worker_check

AGENT = "class {}(gymq.Agent):\n    async def converse(self, rollout, session): ...\n"

VERIFIER = '''
import gymq


class Row(gymq.Row):
    answer: str


class Env(gymq.Resources[Row]):
    @gymq.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def verify(self, request):
        BODY
'''

CONFIG = {
    "env": {"resources_servers": {"env/worker.py": {"entrypoint": "worker.py", "domain": "other"}}},
    "env_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "worker.py",
                "resources_server": {"type": "resources_servers", "name": "env"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
}


def row(**members) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "?"}]}
    return {"responses_create_params": params, "answer": "A", "agent_ref": {"name": "env_agent"}, **members}


def make(folder: Path, *rows: dict[str, Any] | str, body: str = "return gymq.Verdict(0.0)", tests: str = "") -> Path:
    """A worker's folder `env`."""
    env = folder / "env"
    (env / "data").mkdir(parents=True)
    (env / "tests").mkdir()
    (env / "worker.py").write_text(VERIFIER.replace("BODY", body))
    (env / "config.yaml").write_text(json.dumps(CONFIG))
    lines = (line if isinstance(line, str) else json.dumps(line) for line in rows)
    (env / "data" / "example.jsonl").write_text("".join(line + "\n" for line in lines))
    if tests:
        (env / "tests" / "test_env.py").write_text(tests)
    return env


def steps(called) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in called.json["steps"]}


def test_a_failing_test_of_its_own_fails_it_with_the_reason(gymq, here):
    env = make(here, tests="def test_it():\n    assert 1 + 1 == 3\n")
    (env / "data" / "example.jsonl").unlink()
    called = gymq("test", "env")
    assert called.status == 1
    assert "1 failed" in called.out
    assert "assert (1 + 1) == 3" in called.out


ASYNC_TEST = """
import asyncio

import pytest


@pytest.fixture
async def three():
    await asyncio.sleep(0)
    return 3


async def test_it(three):
    assert three == EXPECTED
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("expected", "status"), [("3", 0), ("4", 1)])
def test_async_tests_run_without_any_configuration(gymq, here, expected, status):
    make(here, row(), tests=ASYNC_TEST.replace("EXPECTED", expected))
    called = gymq("test", "env", "--json")
    step = steps(called)["its tests"]
    assert called.status == status
    assert ("1 passed" if status == 0 else "1 failed") in step["summary"]


@pytest.mark.nightly
def test_async_tests_are_not_run_without_the_plugin_and_what_to_install_is_said(gymq, here, monkeypatch):
    make(here, row(), tests=ASYNC_TEST.replace("EXPECTED", "3"))
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "pytest_asyncio" else found(name, *of)
    )
    called = gymq("test", "env", "--json")
    assert called.status == 0
    step = steps(called)["its tests"]
    assert (step["status"], "pip install 'gymq[test]'" in step["summary"]) == ("none", True)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{oops", "not valid JSON"),
        ("[1]", "not an object"),
        ({"answer": "A"}, "the row has no prompt: its fields are answer; pass --prompt-field NAME"),
        (row(answer=3), "answer: must be text, not 3"),
        (row(responses_create_params={"input": "x", "temperature": "hot"}), "temperature"),
        (row(agent_ref={"name": "env_agnt"}), "did you mean env_agent?"),
        (row(agent_ref="env_agent"), "must be an object with the agent's `name`"),
        (
            row(
                responses_create_params={
                    "input": "x",
                    "tools": [{"type": "function", "name": "sub", "parameters": {}, "strict": True}],
                }
            ),
            "offers the tool 'sub', but env has no such tool",
        ),
    ],
)
def test_an_example_row_that_cannot_be_used_is_named(gymq, here, bad, reason):
    make(here, row(), bad)
    called = gymq("test", "env", "--json")
    assert called.status == 1
    step = steps(called)["example rows"]
    assert step["status"] == "failed"
    assert step["details"][0].startswith("example.jsonl:2: ")
    assert reason in step["details"][0]
    assert "end to end" not in steps(called)


def test_rows_of_a_verifier_without_tools_may_offer_any(gymq, here):
    tools = [{"type": "function", "name": "sub", "parameters": {}, "strict": True}]
    env = make(here, row(responses_create_params={"input": "x", "tools": tools}))
    worker = env / "worker.py"
    worker.write_text(worker.read_text().replace("    @gymq.tool\n", ""))
    called = gymq("test", "env", "--json")
    assert steps(called)["example rows"]["status"] == "ok"


def test_an_exception_of_the_verifier_on_an_empty_reply_fails_it(gymq, here):
    make(here, row(answer=""), body="return gymq.Verdict(1 / len(request.reply_text))")
    called = gymq("test", "env", "--json")
    assert called.status == 1
    step = steps(called)["in this process"]
    assert step["status"] == "failed"
    assert step["summary"] == "1 problem"
    problem = "example.jsonl:1, an empty reply, and 1 more: Env failed to verify: ZeroDivisionError"
    assert [problem in line for line in step["details"]] == [True, False]  # the other is a tool


@pytest.mark.nightly
def test_a_typed_failure_is_a_proper_answer(gymq, here):
    make(here, row(), body='raise gymq.JudgeFailed("no judge here")')
    called = gymq("test", "env", "--json")
    assert called.status == 0
    found = steps(called)
    assert "judge_failed: no judge here" in found["in this process"]["details"]
    assert "not counted" in found["end to end"]["details"][0]


def test_a_rollout_that_fails_fails_it(gymq, here):
    make(here, row(), body='raise gymq.InvalidTask("never fits")')
    called = gymq("test", "env", "--json")
    assert called.status == 1
    step = steps(called)["end to end"]
    assert step["status"] == "failed"
    assert step["details"] == ["1 invalid_task at verify: never fits"]


def test_the_schemas_of_its_tools_are_shown(gymq, here):
    make(here, "{broken", row())
    out = gymq("test", "env").out
    assert 'tool add {"a":{"type":"integer"},"b":{"type":"integer"}}  Add two numbers.' in out


@pytest.mark.nightly
def test_its_folder_can_be_anywhere(gymq, here, monkeypatch):
    make(here / "elsewhere", row())
    monkeypatch.chdir("/")
    called = gymq("test", here / "elsewhere" / "env")
    assert called.status == 0
    assert "1 rollout in" in called.out


def test_a_configuration_that_cannot_be_loaded_fails_it(gymq, here):
    env = make(here, row())
    (env / "config.yaml").write_text(json.dumps({"env_agent": CONFIG["env_agent"]}))
    called = gymq("test", "env")
    assert called.status == 1
    assert "no resources_servers are called env" in called.out


def test_a_worker_with_nothing_beside_it_is_not_called_good(gymq, here):
    make(here / "x")
    (here / "env.py").write_text((here / "x" / "env" / "worker.py").read_text())
    called = gymq("test", "env.py")
    assert called.status == 1
    assert "nothing to check" in called.out
    assert "`gymq test env.py --rows rows.jsonl`" in called.out


def test_each_row_whose_own_solution_does_not_earn_the_full_reward_is_named(gymq, here):
    graded = "return 2.0 * (request.reply_text == request.row.answer)"
    worker = VERIFIER.replace("BODY", graded).replace(
        "    @gymq.tool", "    reward_range = (0.0, 2.0)\n\n    @gymq.tool"
    )
    (here / "env.py").write_text(worker)
    rows = [
        {"prompt": f"{number}?", "answer": answer, "simulated_solution": "A"} for number, answer in enumerate("ABA")
    ]
    (here / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    called = gymq("test", "env.py", "--rows", "rows.jsonl", "--json")
    assert called.status == 1
    step = steps(called)["end to end"]
    assert step["status"] == "failed"
    assert step["details"] == ["rows.jsonl:2: its own simulated_solution earned 0, not 2"]

    right = "++policy_model.responses_api_models.simulated_model.skill=1.0"
    called = gymq("collect", "--resources", "env.py", "--rows", "rows.jsonl", "-o", "out.jsonl", right)
    assert called.status == 0, called.err
    assert "  rows.jsonl:2: its own simulated_solution earned 0, not 2\n" in called.err
    assert "rows.jsonl:1" not in called.err


@pytest.mark.nightly
def test_a_file_is_checked_with_rows_from_elsewhere_without_any_configuration(gymq, here):
    (here / "env.py").write_text(VERIFIER.replace("BODY", "return gymq.Verdict(float(request.reply_text == 'A'))"))
    solution = json.dumps([[{"text": "A"}]])
    params = {"input": "?", "metadata": {"simulated_solution": solution}}
    rows = [{"responses_create_params": params, "answer": "A"}, {"responses_create_params": params, "answer": "B"}]
    (here / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    called = gymq("test", "env.py", "--rows", "rows.jsonl", "--json")
    assert called.status == 0, called.out
    found = steps(called)
    assert found["example rows"]["summary"] == "2 rows"
    assert "2 rollouts" in found["end to end"]["summary"]
    assert "mean reward 1.00" in found["end to end"]["summary"]
    (here / "rows.jsonl").write_text(json.dumps({"responses_create_params": params}) + "\n")
    called = gymq("test", "env.py", "--rows", "rows.jsonl", "--json")
    assert called.status == 1
    assert "rows.jsonl:1: " in steps(called)["example rows"]["details"][0]
    assert "answer" in steps(called)["example rows"]["details"][0]


def test_rows_that_are_not_there_are_refused(gymq, here):
    make(here, row())
    called = gymq("test", "env", "--rows", "rowz.jsonl")
    assert called.status == 2
    assert "rowz.jsonl: file not found" in called.err


@pytest.mark.nightly
def test_the_rows_of_a_folder_can_be_others(gymq, here):
    make(here, "{broken")
    (here / "rows.jsonl").write_text(json.dumps(row()) + "\n")
    assert gymq("test", "env", "--rows", "rows.jsonl").status == 0


@pytest.mark.nightly
def test_a_worker_that_was_installed_without_its_tests_says_so(gymq, here, monkeypatch):
    env = make(here, row())
    (env / "tests").rmdir()
    monkeypatch.setattr(worker_check, "SHIPPED", here)
    assert "an installed gymq comes without them" in steps(gymq("test", "env", "--json"))["its tests"]["summary"]


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ("no_such_worker", "no worker named 'no_such_worker'"),
        ("mcqaa", "; did you mean mcqa?"),
        ("nix/worker.py", "file or folder"),
        ("data", "has no worker.py"),
        ("two.py", "two.py holds no class, or more than one"),
        ("syntax.py", "cannot be loaded: SyntaxError"),
    ],
)
def test_what_is_no_worker_is_refused(gymq, here, worker, reason):
    (here / "data").mkdir()
    base = "import gymq\nclass A(gymq.Model): pass\nclass B(gymq.Model): pass\n"
    (here / "two.py").write_text(base)
    (here / "syntax.py").write_text("def f(:\n")
    called = gymq("test", worker)
    assert called.status == 2
    assert reason in called.err


def test_a_class_of_several_can_be_named(gymq, here):
    (here / "two.py").write_text("import gymq\nclass A(gymq.Model): pass\n" + AGENT.format("B"))
    assert gymq("test", "two.py:B", "--json").json["kind"] == "agents"


def test_a_worker_that_comes_with_gymq_is_the_same_by_name_folder_and_file():
    by_name = find_worker("example_single_tool_call")
    assert by_name.kind == "resources"
    assert by_name.folder is not None
    assert find_worker(str(by_name.folder)) == by_name
    assert find_worker(str(by_name.file)) == by_name


def test_a_worker_in_the_current_folder_is_found_by_name(here):
    folder = here / "workers" / "agents" / "my_own_agent"
    folder.mkdir(parents=True)
    (folder / "worker.py").write_text("import gymq\n" + AGENT.format("Mine"))
    found = find_worker("my_own_agent")
    assert (found.kind, found.implementation, found.folder) == ("agents", "my_own_agent", folder)
