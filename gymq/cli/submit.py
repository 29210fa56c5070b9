"""Define the command `gymq submit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.parameters import Count


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
    from gymq.cli.actions.submit import SlurmJob, submit_to_slurm
    from gymq.cli.shared.errors import UsageError

    if not slurm:
        raise UsageError("missing --slurm: commands are submitted to Slurm only")
    return submit_to_slurm(SlurmJob(command, nodes=nodes, time=time, options=option, logs=logs))
