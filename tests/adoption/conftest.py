"""Workers on a bus, as for the tests of the bridge."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gymq.bus import Bus
from gymq.outcomes import Retry

from ..bridge.environments import Counter, Grader
from ..bridge.world import World


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried as often as it would be, with shorter pauses in between."""
    pause_s = Retry.pause_s

    def shorter(retry: Retry, failed: int, **limits: float) -> float | None:
        pause = pause_s(retry, failed, **limits)
        return None if pause is None else pause / 100

    monkeypatch.setattr(Retry, "pause_s", shorter)


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """A model in front of a scripted engine, and two environments. No agents yet, and no bridge."""
    async with AsyncExitStack() as stack:
        world = World(shared_url, bus, stack)
        await world.start()
        await world.add_model()
        await world.add_resources("counter", Counter())
        await world.add_resources("grader", Grader())
        yield world
