"""Define the commands that change a run: `gymq pause`, `resume`, `retune`, `cancel` and `delete`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import ClusterUrl, OptionalIndex, PriorityName, Share
from gymq.errors import UsageError

RunPattern = Annotated[
    str,
    Parameter(
        help="name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character."
    ),
]


async def pause(*, run: RunPattern, nats: ClusterUrl = None) -> int:
    """Pause a run: agents start none of its rollouts until it is resumed. Rollouts in flight finish."""
    return await _steer(run, nats, paused=True)


async def resume(*, run: RunPattern, nats: ClusterUrl = None) -> int:
    """Resume a paused run: agents start its rollouts again."""
    return await _steer(run, nats, paused=False)


async def retune(
    *,
    run: RunPattern,
    share: Share = None,
    priority: PriorityName | None = None,
    max_in_flight: Annotated[int | None, Parameter(validator=Number(gte=0, lte=1_000_000))] = None,
    nats: ClusterUrl = None,
) -> int:
    """Change a run's share of the workers, its priority or its limit. Options that are not given keep their values.

    Args:
        share: its share of the workers, relative to other runs of the same priority; 1 by default.
        priority: `urgent` runs get the next free slot, `background` runs what others leave.
        max_in_flight: maximum number of its rollouts in flight, for each of its agents; 0: no maximum.
    """
    from gymq.protocol.messages import Priority

    changes: dict[str, object] = {} if share is None else {"share": share}
    if priority is not None:
        changes["priority"] = Priority(priority)
    if max_in_flight is not None:
        changes["max_in_flight"] = max_in_flight or None
    if not changes:
        raise UsageError("nothing to change: give --share, --priority or --max-in-flight")
    return await _steer(run, nats, **changes)


async def _steer(pattern: str, nats: str | None, **changes: object) -> int:
    from gymq.bus.queue.steering import steer
    from gymq.cli.shared.cluster import connected, matching_runs, running_url
    from gymq.protocol.messages import Priority

    async with connected(await running_url(nats), name="gymq retune") as bus:
        for run in await matching_runs(bus, pattern):
            steering = await steer(bus, run, **changes)
            parts = ["paused" if steering.paused else "not paused", f"share {steering.share:g}"]
            if steering.priority not in (None, Priority.NORMAL):
                parts.append(str(steering.priority))
            if steering.max_in_flight is not None:
                parts.append(f"at most {steering.max_in_flight:,} in flight for each agent")
            print(f"run {run}: {', '.join(parts)}")
    return 0


async def cancel(*, run: RunPattern, task: OptionalIndex = None, nats: ClusterUrl = None) -> int:
    """Cancel a run: remove its queued rollouts and stop those in flight. Finished rollouts stay.

    Args:
        task: cancel only this task.
    """
    from gymq.bus.queue.client import QueueClient
    from gymq.cli.shared.cluster import connected, matching_runs, running_url

    async with connected(await running_url(nats), name="gymq cancel") as bus:
        for name in await matching_runs(bus, run):
            queued = await QueueClient(bus).cancel(name, task)
            what = f"run {name}" if task is None else f"task {task} of run {name}"
            print(f"{what} is cancelled; {queued:,} of its rollouts were queued or in flight")
    return 0


async def delete(*, run: list[str], nats: ClusterUrl = None) -> int:
    """Delete the stored rollouts, failures, dead letters and statistics of runs. Result files stay.

    A run with queued rollouts is refused: cancel it first.

    Args:
        run: name of a run, as `gymq rollouts` lists it; may be repeated.
    """
    from gymq.bus import streams
    from gymq.bus.credentials import OPERATOR
    from gymq.bus.queue.client import QueueClient
    from gymq.cli.shared.cluster import connected, require_run, stored_url
    from gymq.render import counted
    from gymq.runs.stored_runs import Runs

    async with stored_url(nats) as url, connected(url, name="gymq delete", role=OPERATOR) as bus:
        for name in run:
            if queued := await QueueClient(bus).num_queued(name):
                left = f"{counted(queued, 'rollout')} queued or in flight"
                raise UsageError(f"run {name}: {left}; `gymq cancel --run {name}` first")
            await require_run(bus, name)
            stored = await Runs(bus).num_stored(name)
            await streams.delete_run(bus.js, name)
            print(f"run {name} is deleted from the store, with {counted(stored, 'outcome')}; files of results stay")
    return 0
