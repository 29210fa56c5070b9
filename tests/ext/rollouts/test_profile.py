"""gymq profile: the same statistics from the stream, from the files and from the profiler."""

import asyncio
import json
import os
import pty
import subprocess
import time
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Profile, Run
from gymq.stats.running import RunningProfile
from tests.cli.conftest import entry

# Two tasks of four rollouts, half of them right: 1 - C(2, k) / C(4, k).
PASS_AT = {1: 50.0, 2: 100 * 5 / 6, 4: 100.0}


def pass_at(statistics: dict[str, Any]) -> dict[int, float]:
    agent = statistics["agents"]["letters_agent"]
    return {int(k): estimate["value"] for k, estimate in agent["pass_at_k"].items()}


def test_the_exact_statistics_of_a_run(gymq, cluster):
    found = gymq("profile", "--run", cluster.run, "--json").json
    assert pass_at(found) == pytest.approx(PASS_AT)
    agent = found["agents"]["letters_agent"]
    assert found["all"] == agent
    assert json.loads((cluster.folder / "letters_statistics.json").read_text())["all"] == agent
    assert (agent["rollouts"], agent["tasks"], agent["failures"]) == (8, 2, {"judge_failed": 4})
    assert (agent["mean_reward"]["value"], agent["lower_bound"]) == (0.5, pytest.approx(1 / 3))
    assert agent["fields"]["reward"]["mean"] == 0.5
    assert agent["fields"]["length"]["max"] == 1
    assert agent["fields"]["output_tokens"]["mean"] == 6
    assert agent["no_answer"] == 0.0


def test_tables_show_rates_numbers_and_failures(gymq, cluster):
    out = gymq("profile", "--run", cluster.run).out
    for part in (cluster.run, "letters_agent", "50.0", "83.3", "majority", "output_tokens", "4 judge_failed"):
        assert part in out


def test_rewards_that_pass_are_those_of_the_threshold_from_stream_and_files(gymq, cluster):
    for source in (["--run", cluster.run], [cluster.file()]):
        easy = gymq("profile", *source, "--pass-threshold", 0, "--json").json
        hard = gymq("profile", *source, "--pass-threshold", 1.5, "--json").json
        assert set(pass_at(easy).values()) == {100.0}
        assert set(pass_at(hard).values()) == {0.0}
        assert easy["agents"]["letters_agent"]["mean_reward"]["value"] == 0.5
    assert "with a reward of 1.5 or more" in gymq("profile", "--run", cluster.run, "--pass-threshold", 1.5).out
    refused = gymq("profile", "--run", cluster.run, "--live", "--pass-threshold", 0)
    assert "leave out --pass-threshold" in refused.err


def test_the_mean_reward_comes_first(gymq, cluster):
    out = gymq("profile", "--run", cluster.run).out
    header = next(line for line in out.splitlines() if "environment (agent)" in line)
    assert header.split()[2:4] == ["mean", "reward"]


def test_the_k_wanted_are_shown(gymq, cluster):
    assert list(pass_at(gymq("profile", "--run", cluster.run, "--k", "3,1", "--json").json)) == [1, 3]
    assert "pass@3" in gymq("profile", "--run", cluster.run, "--k", "3").out


@pytest.mark.parametrize("k", ["0", "a", "1,,2", "-1", "1.5"])
def test_a_k_that_is_no_count_is_refused(gymq, cluster, k):
    called = gymq("profile", "--run", cluster.run, f"--k={k}")
    assert called.status == 2
    assert "--k must be numbers from 1" in called.err


def test_one_task_alone(gymq, cluster):
    found = gymq("profile", "--run", cluster.run, "--task", 1, "--json").json
    assert found["agents"]["letters_agent"]["rollouts"] == 4
    called = gymq("profile", "--run", cluster.run, "--task", 55)
    assert called.status == 2
    assert "has no rollouts yet" in called.err


def test_an_unknown_run_is_refused(gymq, cluster):
    called = gymq("profile", "--run", "nix")
    assert called.status == 2
    assert "run 'nix' not found" in called.err


def test_the_files_of_a_run_give_the_same_statistics_without_any_cluster(gymq, cluster, here):
    copy(cluster, here)
    from_files = gymq("profile", "letters.jsonl", "--output", "letters.jsonl", "--json").json
    os.chdir(cluster.folder)
    from_stream = gymq("profile", "--run", cluster.run, "--json").json
    assert pass_at(from_files) == pass_at(from_stream)
    assert from_files["agents"]["letters_agent"]["failures"] == {"judge_failed": 4}
    assert (here / "letters_reward_profiling.jsonl").is_file()
    assert (here / "letters_agent_metrics.json").is_file()


def test_output_writes_what_the_collection_wrote(gymq, cluster, here):
    os.chdir(cluster.folder)
    for stem, arguments in {
        "stream": ["--run", cluster.run],
        "files": [cluster.file()],
    }.items():
        assert gymq("profile", *arguments, "--output", here / "new" / stem).status == 0
        for suffix in ("_reward_profiling.jsonl", "_agent_metrics.json", "_statistics.json"):
            written = (here / "new" / f"{stem}{suffix}").read_text()
            # A stored row also has the tools that its agent offered, which the materialised row lists none of.
            assert without_samples(written) == without_samples((cluster.folder / f"letters{suffix}").read_text())
    assert len(list((here / "new").iterdir())) == 6


def test_a_mistake_in_a_file_is_named_by_the_files_own_name(gymq, here):
    (here / "rows.jsonl").write_text("")
    (here / "out.jsonl").write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0}\n')
    for output in ([], ["--output", "x"]):
        called = gymq("profile", "out.jsonl", "--rows", "rows.jsonl", *output)
        assert called.status == 2
        assert "gymq: out.jsonl:1: " in called.err


def test_live_shows_what_the_cluster_keeps(gymq, cluster):
    for _ in range(50):
        called = gymq("profile", "--run", cluster.run, "--live", "--json")
        if called.status == 0 and called.json["agents"]["letters_agent"]["rollouts"] == 8:
            break
        time.sleep(0.2)
    assert pass_at(called.json) == pytest.approx(PASS_AT)


def test_live_says_how_to_read_statistics_that_another_version_saved(gymq, shared_url, run):
    async def store():
        bus = await Bus.connect(shared_url, role="test", name="store")
        await bus.js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=1.0, num_rollouts=1)))
        snapshot = msgspec.to_builtins(RunningProfile().snapshot())
        saved = Profile(run=run, sequence=1, all_sequence=1, at=1.0, snapshot=snapshot, state=b"other")
        await bus.js.store(subjects.PROFILE.of(run), encode(saved))
        await bus.close()

    asyncio.run(store())
    called = gymq("profile", "--run", run, "--live", "--json", "--nats", shared_url)
    assert called.status == 2
    assert f"run {run}: the saved state of the profile cannot be read" in called.err
    assert "leave out --live" in called.err


def test_the_live_view_of_a_complete_run_ends_by_itself(cluster):
    terminal, theirs = pty.openpty()
    command = [*entry(), "profile", "--run", cluster.run, "--live"]
    process = subprocess.Popen(command, stdout=theirs, env={**os.environ, "COLUMNS": "100", "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:
        pass  # the other end is closed
    assert process.wait(timeout=600) == 0
    assert "12 of 12 rollouts" in shown.decode()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give one of FILE"),
        (["--rows", "x"], "give one of FILE"),
        (["x", "--run", "r"], "give one of FILE"),
        (["--run", "r", "--rows", "x"], "--rows are those of FILE"),
        (["x", "--live"], "need --run"),
        (["--run", "r", "--live", "--task", "1"], "shows whole runs"),
        (["nix.jsonl"], "file not found"),
        (["nix.jsonl", "--output", "."], "the output . is a folder"),
        (["nix.jsonl", "--output", "/dev/null/x"], "gymq: /dev/null: File exists"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(gymq, here, arguments, reason):
    called = gymq("profile", *arguments)
    assert called.status == 2
    assert reason in called.err


def copy(cluster, folder):
    for suffix in ("", "_materialized_inputs", "_failures"):
        (folder / f"letters{suffix}.jsonl").write_bytes(cluster.file(suffix).read_bytes())
    manifest = json.loads((cluster.folder / "letters_run.json").read_text())
    assert manifest["run"] == cluster.run


def test_results_that_name_no_agent_take_it_from_their_rows(gymq, here):
    """As NeMo Gym's own results of March 2026."""
    places = [{"_ng_task_index": task, "_ng_rollout_index": index} for task in range(2) for index in range(2)]
    rows = [place | {"agent_ref": {"name": f"agent_{place['_ng_task_index']}"}} for place in places]
    results = [place | {"reward": 1.0, "response": {"usage": None}} for place in places]
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "out.jsonl").write_text("\n".join(json.dumps(result) for result in results) + "\n\n")
    found = gymq("profile", "out.jsonl", "--rows", "rows.jsonl", "--json").json
    assert {name: agent["rollouts"] for name, agent in found["agents"].items()} == {"agent_0": 2, "agent_1": 2}
    assert not (here / "out_agent_metrics.json").exists()  # only --output writes files


@pytest.mark.parametrize("output", [[], ["--output", "out"]])
@pytest.mark.parametrize("broken", [{"agent_ref": 3}, {"agent_ref": {"name": ""}}, {"response": {"usage": 5}}])
def test_what_cannot_be_profiled_overwrites_nothing(gymq, here, broken, output):
    place = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    (here / "rows.jsonl").write_text(json.dumps(place | {"agent_ref": {"name": "a"}}) + "\n")
    (here / "out.jsonl").write_text(json.dumps(place | {"reward": 1.0, "response": {}} | broken) + "\n")
    theirs = [here / "out_reward_profiling.jsonl", here / "out_agent_metrics.json", here / "out_statistics.json"]
    for file in theirs:
        file.write_text("theirs")
    called = gymq("profile", "out.jsonl", "--rows", "rows.jsonl", *output)
    assert called.status == 2
    assert "out.jsonl:1: " in called.err
    assert [file.read_text() for file in theirs] == ["theirs"] * 3


def test_an_output_that_ends_in_jsonl_gives_its_stem(gymq, here):
    place = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    (here / "rows.jsonl").write_text(json.dumps(place | {"agent_ref": {"name": "a"}}) + "\n")
    (here / "out.jsonl").write_text(json.dumps(place | {"reward": 1.0, "response": {}}) + "\n")
    gymq("profile", "out.jsonl", "--rows", "rows.jsonl", "--output", "x.jsonl")
    names = {"x_reward_profiling.jsonl", "x_agent_metrics.json", "x_statistics.json"}
    assert {file.name for file in here.glob("x*")} == names


def without_samples(profile: str) -> list[Any]:
    """Every line of a profile without the row that it has as an example."""
    if not profile.startswith('{"_ng_task_index"'):
        return [profile]
    return [
        {name: value for name, value in json.loads(line).items() if name != "sample"} for line in profile.splitlines()
    ]
