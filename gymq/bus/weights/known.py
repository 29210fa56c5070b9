"""Whether the versions of a policy are known: without them a limit on staleness would limit nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymq.bus import Bus
from gymq.bus.discovery import find_workers, is_running, reported
from gymq.bus.weights.holding import LOOK_S, Begun
from gymq.bus.weights.pushing import newest, weights_of
from gymq.errors import GymqError


class VersionsUnknown(GymqError):
    """A limit on staleness is asked for, and nothing tells which policy answers."""


async def check_known(bus: Bus, model: str) -> None:
    """Check that something tells the versions of a model: weights that were pushed or announced, or the model itself.

    Raises:
        VersionsUnknown: nothing does.
    """
    if await bus.retry_read(lambda: newest(bus, model)) is not None:
        return
    if not await is_running(bus, model, "models"):
        raise VersionsUnknown(
            f"staleness cannot be limited: no model named {model!r} is running, and no weights of it were announced"
        )
    if not any(map(_tells, await _reports(bus, model))):
        raise VersionsUnknown(
            f"staleness cannot be limited: nothing tells which policy {model} answers with; announce each, the first "
            f"one included, with `gymq weights announce VERSION --model {model}` or `TrainingRun.announce`"
        )


async def check_known_to(bus: Bus, agents: Iterable[str]) -> None:
    """Check the models of agents; errors as in `check_known`."""
    begun = [reported(stats, "begun", Begun) for agent in agents for stats in await _reports(bus, agent)]
    for model in sorted({one.model for one in begun if one is not None}):
        await check_known(bus, model)


async def told_versions(bus: Bus, model: str) -> list[str] | None:
    """Return the versions that the engines of a model name; None if the model loads its weights itself."""
    states = [state for stats in await _reports(bus, model) if (state := weights_of(stats)) is not None]
    if states and not any(state.is_announced for state in states):
        return None
    return sorted({version for state in states for version in state.told})


def _tells(stats: dict[str, Any]) -> bool:
    state = weights_of(stats)
    return bool(reported(stats, "policy_version", str)) or (state is not None and not state.is_announced)


async def _reports(bus: Bus, name: str) -> list[dict[str, Any]]:
    # The workers may be too busy to answer at once.
    for _ in range(30):
        if found := await find_workers(bus, name, wait_s=LOOK_S):
            return found
    return []
