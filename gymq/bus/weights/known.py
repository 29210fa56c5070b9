"""Whether the versions of a policy are known: without them a limit on staleness would limit nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymq.bus import Bus
from gymq.bus.discovery import find_workers, is_running, reported
from gymq.bus.weights.holding import LOOK_S, Begun
from gymq.bus.weights.pushing import newest, weights_of


async def why_unknown(bus: Bus, model: str) -> str:
    """Return why nothing states the versions of a model, neither weights pushed or announced nor itself; or nothing."""
    if await bus.retry_read(lambda: newest(bus, model)) is not None:
        return ""
    if not await is_running(bus, model, "models"):
        return f"staleness cannot be limited: no model named {model!r} is running, and no weights of it were announced"
    if any(map(_states_version, await _reports(bus, model))):
        return ""
    return (
        f"staleness cannot be limited: nothing tells which policy {model} answers with; announce each, the first "
        f"one included, with `gymq weights announce VERSION --model {model}` or `TrainingRun.announce`"
    )


async def why_unknown_to(bus: Bus, agents: Iterable[str]) -> str:
    """Return why nothing states the versions of a model of some agents; or nothing."""
    begun = [reported(stats, "begun", Begun) for agent in agents for stats in await _reports(bus, agent)]
    for model in sorted({one.model for one in begun if one is not None}):
        if reason := await why_unknown(bus, model):
            return reason
    return ""


async def told_versions(bus: Bus, model: str) -> list[str] | None:
    """Return the versions that the engines of a model name; None if the model loads its weights itself."""
    states = [state for stats in await _reports(bus, model) if (state := weights_of(stats)) is not None]
    if states and not any(state.is_announced for state in states):
        return None
    return sorted({version for state in states for version in state.told})


def _states_version(stats: dict[str, Any]) -> bool:
    state = weights_of(stats)
    return bool(reported(stats, "policy_version", str)) or (state is not None and not state.is_announced)


async def _reports(bus: Bus, name: str) -> list[dict[str, Any]]:
    return await find_workers(bus, name, wait_s=LOOK_S, looks=30)
