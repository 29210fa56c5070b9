"""gymq rollouts: what was said and what came of it."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from gymq.bus import Bus
from gymq.cli.shared.cluster import running_url
from gymq.ext.shared.rendering import first_words
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import BlobRef
from gymq.render import printable
from tests.cli.conftest import entry, row, write_workers


def test_without_a_run_it_lists_the_runs(gymq, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    called = gymq("rollouts")
    assert called.status == 0
    assert cluster.run in called.out
    assert "12 of 12" in called.out
    assert "policy.py" in called.out


def test_it_lists_every_rollout_of_a_run(gymq, cluster):
    called = gymq("rollouts", "--run", cluster.run)
    lines = [line for line in called.out.splitlines() if line[:5].strip().isdigit()]
    assert len(lines) == 12
    assert sum("judge_failed" in line for line in lines) == 4
    answers = [line.split()[-1] for line in lines if "judge_failed" not in line]
    assert sorted(answers) == ["A"] * 4 + ["B"] * 4


def places_in(listed):
    """The task and the rollout of each line of a listing."""
    return [tuple(map(int, line.split()[:2])) for line in listed.splitlines() if line[:5].strip().isdigit()]


PLACES = [(task, rollout) for task in range(3) for rollout in range(4)]


@pytest.mark.parametrize(("options", "number"), [([], 12), (["--limit", 7], 7), (["--limit", 0], 12)])
def test_rollouts_are_listed_by_task_and_rollout(gymq, cluster, options, number):
    assert places_in(gymq("rollouts", "--run", cluster.run, *options).out) == PLACES[:number]


def test_the_failed_ones_are_counted_by_their_whole_message(gymq, cluster):
    called = gymq("rollouts", "--run", cluster.run, "--failed")
    (line,) = [line for line in called.out.splitlines() if "the judge is asleep" in line]
    assert line.split()[:5] == ["4", "2", "0", "judge_failed", "verify"]


def test_rewards_are_listed_with_three_decimals(gymq, cluster):
    lines = gymq("rollouts", "--run", cluster.run).out.splitlines()
    assert {line.split()[3] for line in lines if line[:5].strip().isdigit()} == {"1.000", "0.000", "-"}


def test_a_file_is_listed_as_a_stored_run_is(gymq, cluster, here):
    assert places_in(gymq("rollouts", cluster.file()).out) == PLACES
    assert "the judge is asleep" in gymq("rollouts", cluster.file(), "--failed").out
    shown = gymq("rollouts", cluster.file(), "--task", 0, "--rollout", 1).out
    assert f"{cluster.run} task 0 rollout 1" in shown
    assert "extracted_answer  B" in shown
    records = gymq("rollouts", cluster.file(), "--task", 1, "--json").out.splitlines()
    assert [json.loads(record)["rollout_index"] for record in records] == [0, 1, 2, 3]
    assert not (here / ".gymq").exists()


def test_a_file_and_a_run_are_not_listed_together(gymq, cluster):
    refused = gymq("rollouts", cluster.file(), "--run", cluster.run)
    assert (refused.status, refused.err) == (
        2,
        "gymq: FILE is read in place of a stored run: leave out --run and --nats\n",
    )


def test_a_task_can_be_picked(gymq, cluster):
    called = gymq("rollouts", "--run", cluster.run, "--task", 1, "--json")
    keys = [(record["task_index"], record["rollout_index"]) for record in map(json.loads, called.out.splitlines())]
    assert sorted(keys) == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_a_list_that_was_cut_says_so(gymq, cluster):
    called = gymq("rollouts", "--run", cluster.run, "--limit", 5)
    assert "the first 5; --limit 0 lists all" in called.out


def test_as_json_it_gives_the_exact_records(gymq, cluster):
    lines = gymq("rollouts", "--run", cluster.run, "--json").out.splitlines()
    records = {(record["task_index"], record["rollout_index"]): record for record in map(json.loads, lines)}
    assert len(records) == 12
    record = records[0, 2]
    assert record["type"] == "rollout.v1"
    assert record["row"]["answer"] == "A"
    assert record["reward"] == 1.0
    assert record["verdict"] == {"extracted_answer": "A", "length": 1}
    message = record["response"]["output"][-1]
    assert message["generation_token_ids"] == [4, 5]
    assert message["generation_log_probs"] == [-0.5, -1.25]
    assert records[2, 0]["type"] == "unresolved.v1"
    assert "reward" not in records[2, 0]


@pytest.mark.parametrize(
    "body", [b"x", encode(BlobRef(subject="gym.parts.rollout.x.y", parts=1, num_bytes=1, sha256="0" * 64))]
)
def test_an_outcome_that_cannot_be_read_is_one_sentence(gymq, cluster, body):
    run = f"spoilt-{len(body)}"

    async def store() -> None:
        bus = await Bus.connect(await running_url(None), role="client", name="test")
        await bus.js.store(subjects.ROLLOUT.of(run, 0, 0), body)
        await bus.close()

    asyncio.run(store())
    shown = gymq("rollouts", "--run", run, "--task", 0, "--rollout", 0)
    assert shown.status == 2
    assert f"gym.rollouts.{run}.0.0: the stored outcome cannot be read" in shown.err
    assert "Traceback" not in shown.err
    listed = gymq("rollouts", "--run", run, "--failed")
    assert listed.status == 0
    assert "not_storable" in listed.out


def test_one_rollout_is_shown_whole_and_in_order(gymq, cluster):
    out = gymq("rollouts", "--run", cluster.run, "--task", 0, "--rollout", 1).out
    parts = [
        f"{cluster.run} task 0 rollout 1",
        "20 in, 6 out",
        "first letter",
        "call of spell",
        '"word": "abc"',
        "output of call_7",
        "a-b-c",
        "reasoning",
        "I think.",
        "assistant",
        "3 prompt_token_ids, 2 generation_token_ids, 2 generation_log_probs",
        "verdict",
        "extracted_answer  B",
    ]
    places = [out.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_a_rollout_without_a_verdict_says_why_and_what_to_do(gymq, cluster):
    out = gymq("rollouts", "--run", cluster.run, "--task", 2, "--rollout", 0).out
    assert "judge_failed at verify" in out
    assert "the judge is asleep" in out
    assert "gymq score" in out
    assert "reward  0" not in out


@pytest.mark.parametrize(
    "command",
    [
        ("rollouts", "--run", "nix"),
        ("rollouts", "--run", "nix", "--task", "0", "--rollout", "0"),
        ("profile", "--run", "nix"),
        ("export", "--run", "nix", "--output", "nix.jsonl"),
        ("cancel", "--run", "nix"),
        ("delete", "--run", "nix"),
    ],
    ids=lambda command: " ".join(command),
)
def test_each_command_about_a_run_names_the_runs_there_are(gymq, cluster, command):
    called = gymq(*command)
    assert called.status == 2
    assert "run 'nix' not found; the" in called.err
    assert cluster.run in called.err
    assert cluster.run in called.err


def test_a_rollout_that_is_not_there_is_refused(gymq, cluster):
    called = gymq("rollouts", "--run", cluster.run, "--task", 77, "--rollout", 0)
    assert called.status == 2
    assert "no outcome of task 77 rollout 0" in called.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--task", "1"], "need --run"),
        (["--failed"], "need --run"),
        (["--run", "r", "--rollout", "1"], "needs --task"),
        (["--run", "r", "--task", "-1"], "--task"),
        (["--run", "a.*"], "must be 1 to 64 characters"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(gymq, cluster, arguments, reason):
    called = gymq("rollouts", *arguments)
    assert called.status == 2
    assert reason in called.out + called.err


def test_an_empty_folder_has_nothing_to_list(gymq, here):
    called = gymq("rollouts")
    assert called.status == 2
    assert "nothing is stored in this folder" in called.err


@pytest.mark.nightly
def test_a_finished_collection_can_be_read_without_starting_anything(gymq, here):
    config = write_workers(here)
    (here / "rows.jsonl").write_text(json.dumps(row("a letter", "A")) + "\n")
    command: list[str | Path] = [*entry(), "collect", "-c", config, "--rows", "rows.jsonl", "-o", "out.jsonl"]
    subprocess.run(command, check=True, capture_output=True)
    run = json.loads((here / "out_run.json").read_text())["run"]
    assert "1 of 1" in gymq("rollouts").out
    assert "a-b-c" in gymq("rollouts", "--run", run, "--task", 0, "--rollout", 0).out


def test_control_characters_of_a_model_do_not_reach_the_terminal():
    assert printable("a\x1b[31mb\x07\u202ec\r\nd\te").plain == "a<1b>[31mb<07><202e>c\nd    e".replace("    ", "\t")


def test_markup_of_a_model_is_not_interpreted():
    assert printable("[bold]x[/bold] [/nonsense]").plain == "[bold]x[/bold] [/nonsense]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("short", "short"), ("a\n  b", "a b"), ("abcdefgh", "abcd…"), ("", ""), ("x" * 1_000_000, "xxxx…")],
)
def test_first_words_fit_on_one_line(text, shown):
    assert first_words(text, 5).plain == shown
