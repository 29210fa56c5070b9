"""One run from its plan to its last rollout, at a cluster that the caller opens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from gymq.bus import Bus
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.plan import RunPlan
from gymq.runs.collection.progress import Progress
from gymq.runs.collection.progress_view import show_progress


@dataclass(frozen=True)
class OpenCluster:
    """A cluster that is open while one run is collected.

    Attributes:
        bus: connection to it.
        models: its models, as tables name them.
        viewer_url: what to open in a browser; None: it has no viewer.
        run: runs a collection there.
    """

    bus: Bus
    models: list[str]
    viewer_url: str | None = None
    run: Callable[[Collection], Awaitable[Progress]] = Collection.run


async def drive(
    plan: RunPlan, opening: AbstractAsyncContextManager[OpenCluster], report: Callable[[str], None], *, quiet: bool
) -> Collection:
    """Open a cluster, and collect a run there.

    Args:
        opening: checks the plan, then opens the cluster.
        report: called with sentences for the user as soon as they are known.
        quiet: show no progress.

    Returns:
        The collection, at its end.

    Raises:
        UsageError, RowError, JsonlError, BusError: as `Collection.run`; and what `opening` raises.
    """
    collection = None
    try:
        async with opening as cluster:
            plan.models = cluster.models
            collection = Collection(cluster.bus, plan, report)
            collection.progress.viewer_url = cluster.viewer_url
            with show_progress(collection.progress, quiet=quiet):
                await cluster.run(collection)
    except asyncio.CancelledError:
        if collection is not None and collection.progress.total:
            report(_interrupted(collection.progress, plan.options.wording.again))
        raise
    return collection


def _interrupted(progress: Progress, again: str) -> str:
    in_flight = f", {progress.in_flight:,} in flight" if progress.in_flight else ""
    done = f"{progress.done:,} of {progress.total:,} done{in_flight}"
    return f"run {progress.run} was interrupted: {done}; {again} resumes it"
