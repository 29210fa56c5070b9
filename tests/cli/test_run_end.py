"""What is said when a collection ends: duration, tokens, truncated replies, retries, failures, the next command."""

import asyncio
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from gymq.bus import Bus
from gymq.cli.actions import joined_cluster
from gymq.cli.actions.joined_cluster import ClusterStopped
from gymq.cli.shared.cluster import STORE
from gymq.cli.shared.run_summary import RunSummary
from gymq.cli.shared.table import profile_table
from gymq.cluster.server import EmbeddedServer, find_running
from gymq.data.run_files import RunFiles
from gymq.redaction import redact
from gymq.runs.collection.progress import Progress
from gymq.stats.files import read_statistics
from gymq.stats.running import RunningProfile

from .conftest import POLICY, entry, row

JUDGED = '''
import gymq


class Judged(gymq.Resources[gymq.Row]):
    """Reward 1 after a judge was asked."""

    async def verify(self, request):
        await self.ask("judge", {"input": "Is it right?"})
        return gymq.Verdict(1.0)
'''

TRUNCATED = (
    'made = reply(reasoning, "A" if index % 2 == 0 else "B")',
    'made = reply("A") | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}',
)


def judged_workers(folder: Path) -> Path:
    """Workers whose verifier asks a judge, and whose policy is always cut short, as a configuration."""
    (folder / "judged.py").write_text(JUDGED)
    (folder / "judge.py").write_text(POLICY)
    (folder / "policy.py").write_text(POLICY.replace(*TRUNCATED).replace('!= "function_call_output"', '== "never"'))
    agent = {
        "entrypoint": "worker.py",
        "resources_server": {"type": "resources_servers", "name": "judged"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    judged = {"entrypoint": "x", "domain": "other"}
    config = {
        "judged": {"resources_servers": {str(folder / "judged.py"): judged}},
        "judged_simple_agent": {"responses_api_agents": {"simple_agent": agent}},
        "policy_model": {"responses_api_models": {str(folder / "policy.py"): {"entrypoint": "x"}}},
        "judge": {"responses_api_models": {str(folder / "judge.py"): {"entrypoint": "x"}}},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row(text, "A")) + "\n" for text in ("first", "second")))
    return path


def test_a_run_with_a_cluster_of_its_own_ends_with_all_that_is_known_of_it(gymq, here):
    config = judged_workers(here)
    ended = gymq("collect", "-c", config, "--rows", "rows.jsonl", "-o", "x.jsonl", "--num-repeats", 4, "--json")
    assert ended.status == 0, ended.err
    found = ended.json
    assert (found["input_tokens"], found["output_tokens"], found["truncated"]) == (80, 24, 8)
    assert (found["judge_input_tokens"], found["judge_output_tokens"]) == (80, 24)
    assert (found["retried"], found["model_retries"], found["failures"]) == (0, 0, [])
    assert found["duration_s"] > 0
    # The profile of a run that ended together with its cluster is complete.
    (run,) = [json.loads(line) for line in gymq("rollouts", "--json").out.splitlines()]
    assert (run["num_rewarded"], run["num_failures"], run["mean_reward"]) == (8, 0, 1.0)
    listed = next(line for line in gymq("rollouts").out.splitlines() if line.startswith(run["run"]))
    assert "8 of 8" in listed
    assert "1.000" in listed


def test_the_end_names_tokens_and_the_next_commands(gymq, cluster, tmp_path):
    output = tmp_path / "x.jsonl"
    ended = gymq("collect", "-c", cluster.config, "--rows", "rows.jsonl", "-o", output, "--num-repeats", 4)
    run = json.loads((tmp_path / "x_run.json").read_text())["run"]
    assert "; tokens of rewarded rollouts: 160 in, 48 out\n" in ended.out
    assert ended.out.splitlines()[-3:] == [
        "  in a browser     gymq view",
        f"  in the terminal  gymq rollouts --run {run}",
        f"  more statistics  gymq profile --run {run}",
    ]
    url = str(asyncio.run(find_running(cluster.folder / ".gymq" / "jetstream")))
    joined = gymq(
        "collect", "--rows", "rows.jsonl", "-o", output, "--num-repeats", 4, "--nats", url, "-c", cluster.config
    )
    assert [line.rpartition(" --nats ")[2] for line in joined.out.splitlines()[-3:]] == [redact(url)] * 3
    assert ended.out.index("mean reward") < ended.out.index("pass@1") < ended.out.index("tokens of")
    assert "truncated" not in ended.out


@pytest.mark.nightly
def test_failures_are_in_the_json_with_their_first_message(gymq, cluster, tmp_path):
    command = ["collect", "-c", cluster.config, "--rows", "rows.jsonl", "-o", tmp_path / "x.jsonl", "--json"]
    (failed,) = gymq(*command).json["failures"]
    assert failed == {
        "failure_class": "judge_failed",
        "num_rollouts": 1,
        "message": "the judge is asleep",
        "task_index": 2,
        "rollout_index": 0,
        "may_be_retried": False,
    }


def test_equal_rows_are_named_where_the_table_is(gymq, cluster, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row(text, "A")) + "\n" for text in ("first", "second", "first")))
    ended = gymq("collect", "-c", cluster.config, "--rows", rows, "-o", tmp_path / "x.jsonl", "--num-repeats", 4)
    assert f"warning: {rows}:1 and {rows}:3 are equal: one task, 8 rollouts\n" in ended.err
    assert "pass@8" not in ended.out.partition("is left out")[0].rpartition("\n")[0]


LETTERS = """
import gymq


class Letters(gymq.Resources[gymq.Row]):
    async def verify(self, request):
        return RESULT
"""


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which imports a changed file again."""
    return subprocess.run([*entry(), *arguments], capture_output=True, text=True, timeout=600, check=False)


def score_command(err: str) -> list[str]:
    """The arguments of the command that an output names."""
    command = next(line[line.index("gymq score ") :] for line in err.splitlines() if "gymq score " in line)
    return shlex.split(command)[1:]


@pytest.mark.nightly
def test_after_a_change_of_the_verifier_the_command_that_verifies_again_is_named_and_works(here):
    (here / "letters.py").write_text(LETTERS.replace("RESULT", "1 / 0"))
    (here / "rows.jsonl").write_text("".join(json.dumps(row(text, "A")) + "\n" for text in ("first", "second")))
    collect = ["collect", "--resources", "letters.py", "--rows", "rows.jsonl", "-o", "x.jsonl"]
    failed = called(*collect)
    assert failed.returncode == 3
    (here / "letters.py").write_text(LETTERS.replace("RESULT", "1.0"))
    assert "2 of 2 rollouts verified again" in called(*score_command(failed.stderr)).stdout
    assert "older than" not in called(*collect).stderr

    (here / "letters.py").write_text(LETTERS.replace("RESULT", "0.5"))
    run = str(RunFiles(here / "x.jsonl").read_run())
    for command in (
        ["profile", "x.jsonl"],
        ["profile", "--run", run],
        ["rollouts", "x.jsonl"],
        ["rollouts", "--run", run],
        collect,
    ):
        said = called(*command).stderr
        assert "gymq: 2 rewards are older than letters.py; this verifies them again:\n  gymq score " in said
    assert called(*score_command(said)).returncode == 0
    for command in (["profile", "x.jsonl"], ["rollouts", "x.jsonl"], ["rollouts", "--run", run], collect):
        assert "older than" not in called(*command).stderr


def test_facts_are_sentences():
    facts = RunSummary(41.2, 36_000, 10_800, 1200, 96, 12, 3, 40)
    assert list(facts.lines()) == [
        "took 41 s; tokens of rewarded rollouts: 36,000 in, 10,800 out; judge: 1,200 in, 96 out",
        "12 replies were truncated at the limit of output tokens (--max-tokens)",
        "retries: 3 of rollouts, 40 of model calls",
    ]
    assert list(RunSummary(1.0, 0, 0, 0, 0, 0, 0, 0).lines()) == ["took 1.00 s"]
    assert list(RunSummary(1.0, 0, 0, 0, 0, 1, 1, 0).lines())[1:] == [
        "1 reply was truncated at the limit of output tokens (--max-tokens)",
        "retries: 1 of rollouts",
    ]


def test_a_table_without_pass_at_k_explains_none():
    profile = RunningProfile()
    profile.add_failure("a", 0, 0, failure_class="verifier_failed", final=True)
    assert "pass@k" not in str(profile_table(profile.snapshot(), run="r").caption)
    profile.add("a", 1, 0, reward=1.0)
    assert "\npass@k in %: " in str(profile_table(profile.snapshot(), run="r").caption)


@pytest.mark.parametrize(
    ("details", "truncated"),
    [({"reason": "max_output_tokens"}, 1), ({"reason": "content_filter"}, 0), (None, 0), ("max_output_tokens", 0)],
)
def test_replies_at_the_limit_of_output_tokens_are_truncated(tmp_path: Path, details: object, truncated: int):
    files = RunFiles(tmp_path / "x.jsonl")
    place = {"_ng_task_index": 0, "reward": 1.0, "agent_ref": {"name": "a"}}
    responses = [{"incomplete_details": details}, {}]
    lines = [place | {"_ng_rollout_index": index, "response": made} for index, made in enumerate(responses)]
    files.output.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    assert read_statistics(files).truncated == truncated


async def test_a_collection_ends_with_the_cluster_that_it_joined(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joined_cluster, "LOOK_EVERY_S", 0.01)
    ended = asyncio.Event()

    class Waiting:
        progress = Progress(run="r", total=2, done=1)

        async def run(self):
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async with EmbeddedServer(STORE) as server:
        url = server.url
        bus = await Bus.connect(url, role="client", name="test")
    try:
        with pytest.raises(ClusterStopped, match="run r joined was stopped: 1 of 2 done"):
            await joined_cluster.run_joined(cast(Any, Waiting()), bus, url)
    finally:
        await bus.close()
    assert ended.is_set()
