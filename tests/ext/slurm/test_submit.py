"""Commands as jobs of Slurm: with a real cluster of one node, and with an sbatch that prints what it was given."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.compatibility import record
from tests.support.slurm import one_node
from tests.support.waiting import until

CONFIG = ("-c", "workers/resources/mcqa/config.yaml", "-c", "workers/models/simulated_model/config.yaml")
SLOWLY = ("++policy_model.responses_api_models.simulated_model.latency_s=0.2", "--concurrency", "4")
COLLECT = ("collect", *CONFIG, *SLOWLY, "--rows", "rows.jsonl", "-o", "out.jsonl", "--num-repeats", "100")
ROW = {
    "responses_create_params": {"input": "A or B?", "metadata": {"simulated_solution": '[[{"text": "\\\\boxed{B}"}]]'}},
    "options": [{"A": "x"}, {"B": "y"}],
    "expected_answer": "B",
}


@pytest.fixture
def sbatch(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in the place of sbatch."""

    def replace(script: str) -> None:
        file = here / "bin" / "sbatch"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    monkeypatch.setenv("PATH", f"{here / 'bin'}:/usr/bin:/bin")
    return replace


@pytest.mark.nightly
async def test_a_collection_is_stopped_and_submitted_again(
    here: Path, gymq: Command, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (here / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    out, logs = here / "out.jsonl", here / ".gymq" / "slurm"
    async with one_node(tmp_path_factory.mktemp("slurm")) as variables:
        monkeypatch.setenv("SLURM_CONF", variables["SLURM_CONF"])

        def submit(*more: str) -> str:
            done = gymq("submit", "--slurm", "--time", "30", *more, "--", *COLLECT)
            assert done.status == 0, done.err
            assert done.out.startswith("job ")
            return done.out.split()[1]

        def jobs() -> str:
            return subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout

        first = submit("--option=--comment=the first")
        await until(lambda: out.exists() and out.stat().st_size > 0)
        await asyncio.to_thread(subprocess.run, ["scancel", "--signal=INT", first], check=True)
        await until(lambda: not jobs().strip())
        assert 0 < len(out.read_text().splitlines()) < 100
        second = submit()
        await until(lambda: not jobs().strip())
    printed = {job: (logs / f"{job}.out").read_text() for job in (first, second)}
    assert "pass@k in %" in printed[second], printed
    indices = [json.loads(line)["_ng_rollout_index"] for line in out.read_text().splitlines()]
    assert sorted(indices) == list(range(100))
    result = "a collection as a job, stopped by Slurm and submitted again: every rollout once"
    record("Slurm: `gymq submit`", "Debian's packages", "a cluster of one node", result)


def test_the_job_runs_the_command_on_each_node_in_this_folder(
    here: Path, gymq: Command, sbatch: Callable[[str], None]
) -> None:
    sbatch(f'printf "%s\\n" "$@" > {here}/arguments; cat > {here}/script; echo "7;one"')
    done = gymq("submit", "--slurm", "--nodes", "3", "--", "up", "--nats", "nats://a:4222", "--config", "all $(x).yaml")
    assert (done.status, done.out.splitlines()[0]) == (
        0,
        "job 7 submitted: gymq up --nats nats://a:4222 --config 'all $(x).yaml'",
    )
    assert "  its output   .gymq/slurm/7.out" in done.out
    arguments = (here / "arguments").read_text().splitlines()
    assert {"--nodes=3", "--job-name=gymq-up", "--ntasks-per-node=1", "--requeue"} <= set(arguments)
    shown = here / "bin" / "srun"
    shown.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    shown.chmod(0o755)
    ran = subprocess.run(["sh", str(here / "script")], capture_output=True, text=True, check=True).stdout
    assert ran.splitlines()[-5:] == ["up", "--nats", "nats://a:4222", "--config", "all $(x).yaml"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--slurm",), "after -- comes a command of gymq, not ''; for example: gymq submit --slurm -- collect"),
        (("--slurm", "--", "colect"), "after -- comes a command of gymq, not 'colect'; did you mean collect"),
        (("--slurm", "--", "submit", "--slurm"), "after -- comes a command of gymq, not 'submit'"),
        (("--", "collect"), "missing --slurm"),
        (("--slurm", "--nodes", "2", "--", "collect"), "--nodes 2: only `up` runs on several nodes; collect would run"),
        (("--slurm", "--option=script.sh", "--", "up"), "--option=script.sh: an option of sbatch begins with a hyphen"),
        (("--slurm", "--", "up"), "Slurm refuses the job: sbatch: error: invalid partition specified: gpu"),
    ],
)
def test_what_cannot_be_submitted_costs_a_sentence(
    gymq: Command, sbatch: Callable[[str], None], arguments: tuple[str, ...], error: str
) -> None:
    sbatch("cat > /dev/null; echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    done = gymq("submit", *arguments)
    assert done.status == 2
    assert done.err.startswith(f"gymq: {error}")


def test_without_slurm_it_says_where_to_run(here: Path, gymq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    done = gymq("submit", "--slurm", "--", "up")
    assert (done.status, done.err.startswith("gymq: sbatch is not installed here")) == (2, True)
