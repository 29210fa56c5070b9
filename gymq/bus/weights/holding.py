"""Rollouts held back while a model is updated, as the pusher of new weights does it.

Agents wait with the first calls of rollouts for as long as they hear that an update is in progress. If the pusher dies
they continue seconds later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from gymq.bus import Bus, BusError
from gymq.bus.discovery import find_workers, reported
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.replica_messages import Hold

log = logging.getLogger("gymq.weights")

EXPIRES_S = 5.0  # without a repetition
LOOK_S = 0.3  # for workers to answer each time that they are asked
GONE_S = 3.0  # without an answer


class Begun(msgspec.Struct):
    """The rollouts of an agent that its model was asked for and that are in flight."""

    model: str
    num_begun: int
    is_held: bool


@asynccontextmanager
async def held(bus: Bus, model: str) -> AsyncIterator[None]:
    """Have agents begin no rollout of a model until the block ends."""

    async def repeat() -> None:
        while True:
            with suppress(BusError):  # it is published again
                await bus.publish(subjects.HOLD.of(model), encode(Hold(for_s=EXPIRES_S)))
            await asyncio.sleep(1.0)

    await bus.publish(subjects.HOLD.of(model), encode(Hold(for_s=EXPIRES_S)))
    await bus.flush()
    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        with suppress(BusError):
            await bus.publish(subjects.HOLD.of(model), encode(Hold(for_s=0.0)))


async def until_finished(bus: Bus, model: str, deadline_s: float) -> None:
    """Wait until the rollouts of a model that were begun have ended, for so many seconds at most.

    Agents are asked until each has heard that rollouts are held back and has none in flight. One that dies meanwhile
    is waited for until it has not answered for `GONE_S`; a rollout of it that is resumed after the update starts over.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + deadline_s
    agents: dict[tuple[str, str], tuple[float, Begun]] = {}  # what each has answered last, and when
    while (now := loop.time()) < give_up:
        for stats in await find_workers(bus, wait_s=LOOK_S):
            if (begun := _begun_of(stats, model)) is not None:
                agents[stats["name"], stats["id"]] = now, begun
        if not bus.is_stable:  # agents that cannot be heard have not died
            agents = {agent: (now, begun) for agent, (_, begun) in agents.items()}
            continue
        alive = [begun for at, begun in agents.values() if at > now - GONE_S]
        if all(begun.is_held and not begun.num_begun for begun in alive):
            return
    log.warning("%s: rollouts have not finished within %g s; they start over", model, deadline_s)


def _begun_of(stats: dict[str, Any], model: str) -> Begun | None:
    """Return what an agent of a model reports of its rollouts; None: it is not an agent of this model."""
    begun = reported(stats, "begun", Begun)
    return begun if begun is not None and begun.model == model else None
