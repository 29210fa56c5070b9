"""The work of `gymq weights`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gymq.bus import Bus
from gymq.bus.credentials import may_take
from gymq.bus.weights.pushing import Pushed, announce
from gymq.bus.weights.pushing import push as push_weights
from gymq.cli.shared.cluster import connected, running_url
from gymq.cluster.server.roles import OPERATOR, TRAINER
from gymq.defaults import InFlight, WeightsMode
from gymq.render import printable


@asynccontextmanager
async def _connected(nats: str | None) -> AsyncIterator[Bus]:
    url = await running_url(nats)
    role = OPERATOR if may_take(url, OPERATOR) and not may_take(url, TRAINER) else TRAINER
    async with connected(url, name="gymq weights", role=role) as bus:
        yield bus


async def push_to_cluster(
    model: str,
    policy_version: str,
    path: Path | None,
    file: Path | None,
    mode: WeightsMode,
    in_flight: InFlight,
    deadline_s: float,
    nats: str | None,
) -> int:
    async with _connected(nats) as bus:
        pushed = await push_weights(
            bus,
            model,
            policy_version,
            path=path,
            weights=file,
            mode=mode,
            in_flight=in_flight,
            deadline_s=deadline_s,
        )
    return report(model, pushed)


async def announce_to_cluster(
    model: str, policy_version: str, engines: list[str], in_flight: InFlight, deadline_s: float, nats: str | None
) -> int:
    async with _connected(nats) as bus:
        announced = await announce(
            bus, model, policy_version, engines=engines, in_flight=in_flight, deadline_s=deadline_s
        )
    return report(model, announced)


def report(model: str, pushed: Pushed) -> int:
    """Print what became of a push, and return the exit status."""
    count = len(pushed.confirmed)
    print(f"{count} replica{'' if count == 1 else 's'} of {model} answer with {printable(pushed.policy_version)}")
    if not (pushed.confirmed or pushed.missing):
        print("gymq: no replica answers: each that starts loads them before it serves", file=sys.stderr)
    if pushed.taken_back:
        print("gymq: no replica can load them: the previous weights stay the newest", file=sys.stderr)
    for worker, why in sorted(pushed.missing.items()):
        print(f"gymq: {worker} does not: {printable(why)}", file=sys.stderr)
    return 0 if pushed.confirmed and pushed.is_complete else 1
