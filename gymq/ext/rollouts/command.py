"""Define the command `gymq rollouts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl, OptionalIndex
from gymq.errors import UsageError


async def rollouts(
    file: Path | None = None,
    /,
    *,
    run: str | None = None,
    task: OptionalIndex = None,
    rollout: OptionalIndex = None,
    failed: bool = False,
    limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    nats: ClusterUrl = None,
    json: bool = False,
) -> int:
    """List the runs, list the rollouts of a run, or show one rollout in full.

    Reads FILE, or the cluster running in this folder or at --nats, otherwise the store in this folder.

    Args:
        file: rollouts to read, of each kind that `gymq view` reads.
        run: the run whose rollouts to list; without it the runs are listed.
        task: only rollouts of this task (its index in the data set).
        rollout: with --task: show this rollout in full, from the prompt to the verdict.
        failed: only rollouts that have no reward.
        limit: maximum number to list, 0 for all; default: 50, with --json all.
        json: print the exact records, one JSON object per line.
    """
    from gymq.ext.rollouts.showing import DEFAULT_LIMIT, show_rollouts

    if file is not None and (run is not None or nats is not None):
        raise UsageError("FILE is read in place of a stored run: leave out --run and --nats")
    if file is None and run is None and (task is not None or rollout is not None or failed):
        raise UsageError("--task, --rollout and --failed need --run or FILE; `gymq rollouts` alone lists the runs")
    if rollout is not None and task is None:
        raise UsageError("--rollout needs --task: rollouts are numbered within a task")
    if limit is None:
        limit = 0 if json else DEFAULT_LIMIT
    return await show_rollouts(file, run, task, rollout, failed, limit, nats, json)


ROLLOUTS = Command("Read", "List runs, or the rollouts of a run; show a rollout.", "gymq.ext.rollouts.command:rollouts")
