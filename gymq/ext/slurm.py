"""The command `gymq submit`: a command of gymq as a Slurm job."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli import all_commands
from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import Count
from gymq.errors import UsageError, did_you_mean

SUBMIT_S = 60.0
STOP_S = 60  # before the end of a job's time, for rollouts in flight

# `srun` passes signals on, runs the command on every node, and lets Slurm see how it ended.
_SCRIPT = """#!/bin/sh
exec srun --kill-on-bad-exit=1 {command}
"""


def submit(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    slurm: bool = False,
    nodes: Count = 1,
    time: str | None = None,
    option: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    logs: Path = Path(".gymq/slurm"),
) -> int:
    """Run a command as a Slurm job, such as `gymq submit --slurm --time 4:00:00 -- collect --rows ...`.

    The job runs in this folder, with this Python. A minute before its time is up, and when its node is taken away, it
    stops in an orderly way; submitted again, or requeued by Slurm, a collection resumes.

    Args:
        command: a command of gymq with its arguments, after `--`. `up --nats URL` starts workers on each node, for a
            server and a collection elsewhere.
        slurm: submit with `sbatch`, the only choice so far.
        nodes: number of nodes; the command runs once on each.
        time: time limit of the job, in Slurm's format: minutes, H:M:S or D-H:M:S. Default: that of the partition.
        option: a further option of `sbatch`, such as `--option=--partition=gpu`; may be given several times.
        logs: folder for what the job prints.
    """
    if not slurm:
        raise UsageError("missing --slurm: commands are submitted to Slurm only")
    return submit_to_slurm(SlurmJob(command, nodes=nodes, time=time, options=option, logs=logs))


SUBMIT = Command("Run", "Run a command as a Slurm job.", "gymq.ext.slurm:submit")


@dataclass(frozen=True)
class SlurmJob:
    """A job.

    Attributes:
        command: of gymq, with its arguments.
        time: its limit, as Slurm takes it; None: that of the partition.
        options: further ones of `sbatch`, one word each.
        logs: folder for what it prints.
    """

    command: tuple[str, ...]
    nodes: int
    time: str | None
    options: tuple[str, ...]
    logs: Path

    def sbatch(self, program: str) -> list[str]:
        """Return the command that submits its script, which is read from standard input.

        Nothing that a user wrote becomes a line of the script that Slurm would read as an option.
        """
        own = [
            *(f"--job-name=gymq-{self.command[0]}", f"--nodes={self.nodes}", "--ntasks-per-node=1"),
            *(f"--output={self.logs.absolute()}/%j.out", "--open-mode=append"),
            *("--requeue", f"--signal=INT@{STOP_S}"),
        ]
        if self.time is not None:
            own.append(f"--time={self.time}")
        return [program, "--parsable", *own, *self.options]

    def script(self) -> str:
        """Return its script."""
        start = [sys.executable, "-P", "-c", "from gymq.cli import main; main()", *self.command]
        return _SCRIPT.format(command=shlex.join(start))


def submit_to_slurm(job: SlurmJob) -> int:
    """Submit a job, and print its number and where its output is."""
    from gymq.redaction import redact  # which takes long to import, and the list of commands imports this module

    name = job.command[0] if job.command else ""
    known = all_commands()
    if name not in known or name == "submit":
        hint = did_you_mean(name, known) if name else "; for example: gymq submit --slurm -- collect --rows FILE"
        raise UsageError(f"after -- comes a command of gymq, not {name!r}{hint}")
    if job.nodes > 1 and name != "up":
        raise UsageError(f"--nodes {job.nodes}: only `up` runs on several nodes; {name} would run {job.nodes} times")
    for option in job.options:
        if not option.startswith("-"):
            raise UsageError(f"--option={option}: an option of sbatch begins with a hyphen: --option=--partition=gpu")
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise UsageError("sbatch is not installed here; run this on a machine from which Slurm jobs are submitted")
    try:
        job.logs.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            job.sbatch(sbatch), input=job.script(), capture_output=True, text=True, timeout=SUBMIT_S, check=False
        )
    except OSError as error:
        raise UsageError(f"{error.filename or sbatch}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"sbatch did not answer within {SUBMIT_S:g} s; `squeue` shows whether it took the job"
        ) from None
    if done.returncode != 0:
        words = " ".join(done.stderr.split()) or f"it ended with status {done.returncode}"
        raise UsageError(f"Slurm refuses the job: {redact(words)[-500:]}")
    number = done.stdout.strip().partition(";")[0]  # with the cluster's name behind it, where there are several
    print(f"job {number} submitted: gymq {redact(shlex.join(job.command))}")
    print(f"  its output   {job.logs / number}.out")
    print(f"  its state    squeue --job {number}")
    print(f"  to stop it   scancel --signal=INT {number}")
    return 0
