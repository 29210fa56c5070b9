"""Define the command `gymq top`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl
from gymq.errors import UsageError


def top(
    *,
    once: bool = False,
    interval: Annotated[float, Parameter(validator=Number(gte=0.2, lte=3600))] = 1.0,
    runs: Annotated[int, Parameter(validator=Number(gte=1, lte=100))] = 5,
    nats: ClusterUrl = None,
    json: bool = False,
) -> int:
    """Watch a cluster: rollouts per second, runs with pass@k, load of the workers, failures.

    `q` quits; arrows, j and k, page keys, g and G scroll.

    Args:
        once: print one sample and exit.
        interval: seconds between two samples.
        runs: how many of the newest runs to show.
        json: with --once: print everything as one JSON object.
    """
    import asyncio

    from rich.console import Console

    from gymq.ext.top.screen import show_once, watch

    if json and not once:
        raise UsageError("--json needs --once")
    if once or not Console().is_terminal:
        return asyncio.run(show_once(interval, runs, nats, json))
    asyncio.run(watch(interval, runs, nats))
    return 0


TOP = Command("Operate", "Watch a cluster: throughput, pass@k, load, failures.", "gymq.ext.top.command:top")
