"""gymq score: new verdicts on old responses, and no invented ones."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymq.cluster.server import find_running
from gymq.data.run_files import refused_row
from gymq.responses import FunctionCall, FunctionCallOutput
from gymq.testing import function_call, reply
from tests.cli.conftest import entry

FIRST_IS_RIGHT = '''
import gymq


class Row(gymq.Row):
    answer: str


class Lenient(gymq.Resources[Row]):
    """Now B is right as well, but half as much."""

    async def verify(self, request):
        return gymq.Verdict({"A": 1.0, "B": 0.5}[request.reply_text], checked=True)
'''

COUNTER = """
import gymq


class Row(gymq.Row):
    start: int
    goal: int


class Counter(gymq.Resources[Row, dict]):
    replayable = REPLAYABLE

    async def open(self, row: Row) -> dict:
        return {"count": row.start}

    @gymq.tool
    async def add(self, state: dict, amount: int) -> int:
        state["count"] += amount
        return state["count"]

    @gymq.tool(offered=False)
    async def cheat(self, state: dict) -> int:
        state["count"] = 100
        return 100

    async def verify(self, request):
        return gymq.Verdict(float(request.state["count"] == request.row.goal))
"""

WAITING = """
import asyncio

import gymq


class Waiting(gymq.Resources):
    async def verify(self, request):
        print("verifying", flush=True)
        await asyncio.sleep(3600)
"""


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def result(index: int, *parts, **members) -> dict[str, Any]:
    """An output row of rollout `index` of task 0."""
    prompt = {"responses_create_params": {"input": [{"role": "user", "content": "?"}]}}
    keys = {"agent_ref": {"name": "some_agent"}, "_ng_task_index": 0, "_ng_rollout_index": index}
    return {**prompt, **keys, "response": reply(*parts), **members}


def called_with_output(amount: int, output: str, call_id: str) -> list[FunctionCall | FunctionCallOutput]:
    return [
        function_call("add", {"amount": amount}, call_id=call_id),
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


@pytest.fixture
def lenient(here: Path) -> Path:
    path = here / "lenient.py"
    path.write_text(FIRST_IS_RIGHT)
    return path


def counter(folder: Path, *, replayable: bool) -> Path:
    path = folder / "counter.py"
    path.write_text(COUNTER.replace("REPLAYABLE", str(replayable)))
    return path


def test_a_changed_verifier_changes_rewards_and_nothing_else(gymq, cluster, lenient, here):
    called = gymq(
        "score", "--rows", cluster.file("_materialized_inputs"), "--rollouts", cluster.file(),
        "--output", here / "new.jsonl", "--resources", lenient,
    )  # fmt: skip
    assert called.status == 0
    assert "8 of 8 rollouts verified again, 4 rewards changed" in called.out
    assert "0.500 before, 0.750 now" in called.out
    before, now = read_lines(cluster.file()), read_lines(here / "new.jsonl")
    assert [row["_ng_rollout_index"] for row in now] == [row["_ng_rollout_index"] for row in before]
    for old, new in zip(before, now, strict=True):
        assert new["reward"] == (1.0 if old["reward"] else 0.5)
        assert new["response"] == old["response"]
        assert new["checked"] is True
        assert "extracted_answer" not in new
    assert gymq("profile", here / "new.jsonl", "--rows", cluster.file("_materialized_inputs")).status == 0


def test_the_configuration_says_who_verifies_which_agent(gymq, cluster, here):
    called = gymq("score", "-c", cluster.config, "--rollouts", cluster.file(), "-o", here / "new.jsonl", "--json")
    assert called.status == 0
    summary = called.json
    assert (summary["verified"], summary["changed"], summary["mean_now"]) == (8, 0, 0.5)


def test_responses_that_could_not_be_verified_get_their_verdict(gymq, cluster, lenient, here):
    called = gymq("score", "--rollouts", cluster.file("_failures"), "-o", here / "new.jsonl", "--resources", lenient)
    assert called.status == 0
    assert "4 had no reward before and have one now" in called.out
    new = read_lines(here / "new.jsonl")
    assert {row["_ng_rollout_index"]: row["reward"] for row in new} == {0: 1.0, 1: 0.5, 2: 1.0, 3: 0.5}
    assert not any(member.startswith("_ng_failure") for row in new for member in row)


def test_what_cannot_be_verified_is_a_failure_and_no_reward(gymq, lenient, here):
    write_lines(here / "old.jsonl", result(0, "A", reward=0.0, answer="A"), result(1, "C", reward=0.0, answer="A"))
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient)
    assert called.status == 3
    assert "1 could not be verified, verifier_failed: lenient failed to verify: KeyError: 'C'" in called.err
    assert [row["_ng_rollout_index"] for row in read_lines(here / "new.jsonl")] == [0]
    (failure,) = read_lines(here / "new_failures.jsonl")
    assert failure["_ng_failure_class"] == "verifier_failed"
    assert failure["response"]["output"][0]["content"][0]["text"] == "C"
    assert "reward" not in failure


def test_rows_of_a_data_set_are_not_taken_for_rollouts(gymq, lenient, here):
    write_lines(here / "rows.jsonl", {"responses_create_params": {"input": "a letter?"}, "answer": "A"})
    scored = gymq("score", "--rollouts", "rows.jsonl", "--resources", lenient, "--output", "scored.jsonl")
    assert scored.status == 2
    assert (
        "rows.jsonl:1: Object missing required field `_ng_task_index`; the lines of files that a run wrote"
        in scored.err
    )


def test_a_row_that_does_not_fit_the_verifier_is_a_failure(gymq, lenient, here):
    write_lines(here / "old.jsonl", result(0, "A", reward=1.0))
    assert gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient).status == 3
    assert read_lines(here / "new_failures.jsonl")[0]["_ng_failure_class"] == "invalid_task"


def test_rollouts_without_a_response_stay_failures(gymq, lenient, here):
    lost = {name: value for name, value in result(1).items() if name != "response"}
    write_lines(here / "old.jsonl", result(0, "A", answer="A"), {**lost, "_ng_failure_class": "model_failed"})
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient)
    assert called.status == 3
    assert "1 have no response" in called.err
    assert read_lines(here / "new_failures.jsonl")[0]["_ng_failure_class"] == "model_failed"


def test_rows_that_could_not_be_used_are_no_rollouts_to_score(gymq, lenient, here):
    failed = {**result(0, "A", answer="A"), "_ng_failure_class": "verifier_failed"}
    write_lines(here / "old.jsonl", json.loads(refused_row("rows.jsonl:1: it has no answer")), failed)
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient)
    assert (called.status, called.err, len(read_lines(here / "new.jsonl"))) == (0, "", 1)


def test_failed_only_takes_over_what_passed(gymq, lenient, here):
    old = write_lines(
        here / "old.jsonl", result(0, "A", reward=1.0, answer="A"), result(1, "B", reward=0.0, answer="A")
    )
    called = gymq("score", "--rollouts", old, "-o", "new.jsonl", "--resources", lenient, "--failed-only")
    assert "1 that passed were copied" in called.out
    kept, new = read_lines(here / "new.jsonl")
    assert kept == read_lines(old)[0]
    assert new["reward"] == 0.5


def test_limit_takes_the_first(gymq, lenient, here):
    write_lines(here / "old.jsonl", *(result(index, "A", reward=0.0, answer="A") for index in range(5)))
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient, "--limit", 2, "--json")
    assert called.json["total"] == 2
    assert called.json["changes"] == [{"before": 0.0, "now": 1.0, "rollouts": 2}]


def test_state_that_a_response_does_not_hold_is_refused_in_one_sentence(gymq, here):
    write_lines(here / "old.jsonl", result(0, "done", reward=1.0, start=0, goal=3))
    environment = counter(here, replayable=False)
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", environment)
    assert called.status == 2
    assert called.err.count("\n") == 1
    assert "counter keeps a state for each rollout, which a stored response does not contain" in called.err
    assert not (here / "new.jsonl").exists()


def test_a_replayable_environment_is_brought_to_the_same_state(gymq, here):
    calls = [*called_with_output(1, "1", "call_1"), *called_with_output(2, "3", "call_2")]
    no_json = [
        {**function_call("add", "{broken", call_id="call_3")},
        {"type": "function_call_output", "call_id": "call_3", "output": "Invalid tool call arguments"},
    ]
    unanswered = function_call("add", {"amount": 50}, call_id="call_4")
    refused = '{"error":"there is no tool named \'cheat\'"}'
    guessed = [
        function_call("cheat", {}, call_id="call_5"),
        {"type": "function_call_output", "call_id": "call_5", "output": refused},
    ]
    same_id = [*called_with_output(1, "1", "call_0"), *called_with_output(2, "3", "call_0")]
    write_lines(
        here / "old.jsonl",
        result(0, *calls, "done", reward=0.0, start=0, goal=3),
        result(1, "done", reward=0.0, start=3, goal=3),
        result(2, *calls, *no_json, unanswered, reward=0.0, start=0, goal=3),
        result(3, *guessed, *same_id, "done", reward=0.0, start=0, goal=3),
    )
    environment = counter(here, replayable=True)
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", environment, "--json")
    assert called.status == 0
    assert [row["reward"] for row in read_lines(here / "new.jsonl")] == [1.0, 1.0, 1.0, 1.0]


def test_a_replay_that_goes_another_way_is_a_failure(gymq, here):
    calls = called_with_output(1, "7", "call_1")
    write_lines(here / "old.jsonl", result(0, *calls, "done", reward=1.0, start=0, goal=1))
    environment = counter(here, replayable=True)
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", environment)
    assert called.status == 3
    (failure,) = read_lines(here / "new_failures.jsonl")
    assert failure["_ng_failure_class"] == "session_lost"
    assert "call 1 (add) gave another output" in failure["_ng_failure_message"]


JUDGED = """
import gymq


class Judged(gymq.Resources[gymq.Row]):
    async def verify(self, request):
        response = await self.ask("policy_model", {"input": [{"role": "user", "content": "ok?"}]})
        return gymq.Verdict(float(len(response["output"])))
"""


def test_a_judge_needs_a_cluster_and_says_so(gymq, here):
    (here / "judged.py").write_text(JUDGED)
    write_lines(here / "old.jsonl", result(0, "A", reward=0.0))
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", "judged.py")
    assert called.status == 3
    assert "policy_model cannot be asked" in called.err
    assert "gymq up" in called.err


def test_a_judge_is_asked_in_the_cluster(gymq, cluster, here):
    (here / "judged.py").write_text(JUDGED)
    write_lines(here / "old.jsonl", result(0, "A", reward=0.0))
    url = asyncio.run(find_running(cluster.folder / ".gymq" / "jetstream"))
    command = ["--rollouts", here / "old.jsonl", "-o", here / "new.jsonl", "--resources", here / "judged.py"]
    called = gymq("score", *command, "--nats", url)
    assert called.status == 0, called.err
    assert read_lines(here / "new.jsonl")[0]["reward"] == 1.0


def test_no_more_are_verified_at_a_time_than_asked_for(gymq, here):
    (here / "busy.py").write_text("""
import asyncio
import gymq

running = 0


class Busy(gymq.Resources[gymq.Row]):
    async def verify(self, request):
        global running
        running += 1
        at_once = running
        await asyncio.sleep(0.01)
        running -= 1
        return gymq.Verdict(1.0, at_once=at_once)
""")
    write_lines(here / "old.jsonl", *(result(index, "A", reward=0.0) for index in range(20)))
    gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", "busy.py", "--concurrency", 3)
    assert max(row["at_once"] for row in read_lines(here / "new.jsonl")) == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--output", "old.jsonl", "--overwrite"], "read and written at the same time"),
        (["--output", "exists.jsonl"], "pass --overwrite"),
        (["--output", "exists.jsonl/new.jsonl"], "gymq: exists.jsonl: File exists"),
        (["--output", "."], "the output . is a folder"),
        (["--output", "new.jsonl", "--rows", "empty.jsonl"], "old.jsonl:1: empty.jsonl has no row of rollout (0, 0)"),
        (["--output", "new.jsonl", "--rows", "nix.jsonl"], "nix.jsonl: file not found"),
        (["--output", "new.jsonl", "--concurrency", "0"], "--concurrency"),
    ],
)
def test_files_that_do_not_fit_are_refused(gymq, lenient, here, arguments, reason):
    write_lines(here / "old.jsonl", result(0, "A", reward=0.0, answer="A"))
    (here / "empty.jsonl").touch()
    (here / "exists.jsonl").write_text("precious")
    called = gymq("score", "--rollouts", "old.jsonl", "--resources", lenient, *arguments)
    assert called.status == 2
    assert reason in called.out + called.err
    assert (here / "exists.jsonl").read_text() == "precious"


def test_an_agent_nobody_knows_is_refused_before_anything_is_verified(gymq, cluster, here):
    write_lines(here / "old.jsonl", result(0, "A", reward=0.0, answer="A"))
    called = gymq("score", "-c", cluster.config, "--rollouts", here / "old.jsonl", "-o", here / "new.jsonl")
    assert called.status == 2
    assert "no instance is named some_agent" in called.err
    assert not (here / "new.jsonl").exists()


def test_without_a_verifier_there_is_nothing_to_do(gymq, here):
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl")
    assert called.status == 2
    assert "pass --config FILE or --resources FILE.py" in called.err


def test_a_response_that_cannot_be_read_costs_itself(gymq, lenient, here):
    good, odd = (json.dumps(result(index, "A", reward=0.0, answer="A")) for index in range(2))
    odd = odd.replace('"response": {', '"response": {"odd": 1e999, ')
    (here / "old.jsonl").write_text(f"{odd}\n{good}\n")
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient, "--json")
    assert (called.status, called.json["verified"], called.json["without_response"]) == (3, 1, 1)
    assert (here / "new_failures.jsonl").read_text() == f"{odd}\n"


def test_a_broken_line_is_named(gymq, lenient, here):
    (here / "old.jsonl").write_text(json.dumps(result(0, "A", reward=0.0, answer="A")) + "\n{oops\n")
    called = gymq("score", "--rollouts", "old.jsonl", "-o", "new.jsonl", "--resources", lenient)
    assert called.status == 2
    assert "old.jsonl:2" in called.err
    assert not (here / "new.jsonl").exists()


def test_sigterm_leaves_no_unfinished_files(here):
    (here / "waiting.py").write_text(WAITING)
    write_lines(here / "old.jsonl", result(0, "A", reward=1.0, answer="A"))
    before = set(here.iterdir())
    command = [*entry(), *("score", "--rollouts", "old.jsonl", "--output", "new.jsonl", "--resources", "waiting.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line == "verifying\n")
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143
    assert {path for path in here.iterdir() if path.name != "__pycache__"} == before


def test_calls_of_a_judge_belong_to_the_verdict_and_not_to_the_row(gymq, lenient, here):
    call = {"model": "judge", "label": "[[A]]", "request": {"input": "right?"}, "response": {"output": []}}
    judged = {"judge_calls": [call], "judge_input_tokens": 9, "judge_output_tokens": 2}
    file = write_lines(here / "old.jsonl", result(0, "A", answer="A", reward=0.0, **judged))
    shown = gymq("rollouts", file, "--task", 0, "--rollout", 0).out
    assert "judge  judge_calls[0]" in shown[shown.index("verdict ═") :]
    assert "judge_calls" not in shown[: shown.index("verdict ═")]
    assert gymq("score", "--rollouts", file, "--output", here / "new.jsonl", "--resources", lenient).status == 0
    (line,) = read_lines(here / "new.jsonl")
    assert line["reward"] == 1.0
    assert not line.keys() & judged.keys()
