"""Outcomes that tests store themselves, in the shared server."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.profiler import Profiler
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Run, Stage, VerifiedRollout
from gymq.testing import reply
from tests.support.world import World


class Stored:
    """A store to which a test adds runs and outcomes."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def store(self, *outcomes: Outcome) -> None:
        store = OutcomeStore(self.world.bus)
        for outcome in outcomes:
            assert await store.put(outcome, replaces=None, patience_s=30.0)

    async def announce(self, run: str, **members: Any) -> None:
        record = encode(Run(run=run, created_at=time.time(), **members))
        await self.world.bus.js.store(subjects.RUN.of(run), record)

    async def profile(self) -> None:
        """Bring the checkpoints of all runs up to date, as the profiler does once a second."""
        profiler = Profiler(self.world.bus)
        await profiler._read_new()


def rollout(
    run: str, task: int, index: int = 0, *, text: str = "Bern", reward: float = 1.0, **members: Any
) -> VerifiedRollout:
    row = members.pop("row", {"answer": "Bern", "responses_create_params": {"input": f"question {task}"}})
    response = members.pop("response", None) or reply(text)
    given: dict[str, Any] = {"agent": "asker", "duration_s": 1.0, "started_at": 1.7e9, **members}
    where: dict[str, Any] = {"run": run, "task_index": task, "rollout_index": index}
    return VerifiedRollout(**where, row=json.dumps(row).encode(), response=response, reward=reward, **given)


def failure(run: str, task: int, index: int = 0, *, message: str = "no GPU", **members: Any) -> Failure:
    given = {"agent": "asker", "failure_class": FailureClass.MODEL_FAILED, "stage": Stage.MODEL, **members}
    return Failure(run=run, task_index=task, rollout_index=index, row=b"{}", message=message, **given)


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        yield made


@pytest.fixture
async def place(world: World) -> Stored:
    return Stored(world)
