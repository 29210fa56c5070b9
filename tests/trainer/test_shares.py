"""Runs of a person, a trainer and a collector share the workers by their shares, wherever they came from."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.queue.steering import steer
from gymq.data.materialise import MaterialiseOptions
from gymq.execution.services.intake import Intake
from gymq.protocol import subjects
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.testing import reply
from gymq.trainer import TrainingRun
from tests.support.environments import Grader
from tests.support.waiting import until, until_answer
from tests.support.world import World

SLOTS = 14
TASKS = 400  # of each run, more than are worked on


class Gated(gymq.Model):
    """Answers its oldest call when the test says so."""

    started: list[str]  # the runs of the calls
    running: list[asyncio.Event]

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        end = asyncio.Event()
        self.started.append(request.rollout.partition("/")[0])
        self.running.append(end)
        await end.wait()
        return reply("done")

    async def work(self, num_rollouts: int) -> Counter[str]:
        """End so many rollouts, each when all slots are in use; the runs of those that took their place."""
        first = len(self.started)
        for number in range(num_rollouts):
            self.running.pop(0).set()
            await until(lambda: len(self.started) > first + number)  # noqa: B023
        return Counter(self.started[first:])


@pytest.fixture
async def model() -> Gated:
    made = Gated(name="policy")
    made.started, made.running = [], []
    return made


@pytest.fixture
async def world(shared_url: str, bus: Bus, model: Gated) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        intake = Intake(bus)
        await intake.start()
        stack.push_async_callback(intake.stop)
        await made.add_model(model=model)
        await made.add_resources("grader", Grader())
        yield made
        for end in model.running:
            end.set()


async def test_runs_of_a_person_a_trainer_and_a_collector_share_the_slots_and_an_urgent_one_starts_within_one(
    world: World, bus: Bus, run: str, model: Gated, tmp_path: Path
) -> None:
    by_hand, trained = f"{run}-hand", f"{run}-train"
    agent = world.name("asker")

    await steer(bus, by_hand, share=4.0)
    submission = {"type": "submission.v1", "run": by_hand, "agent": agent, "task_index": 0, "num_repeats": TASKS}
    await world.add_agent("asker", "grader", max_concurrency=SLOTS)
    await bus.publish(subjects.SUBMISSION.pattern, json.dumps({**submission, "row": world.row()}).encode())

    training = await TrainingRun.connect(world.url, trained, model=world.name("policy"))
    await training.retune(share=2)
    rows = [world.row(f"say {at}", _ng_task_index=at) for at in range(TASKS // 8)]
    groups = asyncio.create_task(_groups(training, rows, num_samples=8))

    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(world.row(f"say {at}")) + "\n" for at in range(TASKS)))
    options = CollectOptions(data, tmp_path / "rollouts.jsonl", MaterialiseOptions(agent_name=agent))
    collecting = asyncio.create_task(Collection(bus, RunPlan(options)).run())
    try:
        await until_answer(world.queued, lambda count: count >= 3 * TASKS)
        await until(lambda: len(model.running) == SLOTS)
        await model.work(5 * SLOTS)  # what was taken before all three were there
        counts = await model.work(420)
        assert counts[by_hand] == pytest.approx(240, rel=0.05), counts
        assert counts[trained] == pytest.approx(120, rel=0.05), counts
        (of_collector,) = counts.keys() - {by_hand, trained}
        assert counts[of_collector] == pytest.approx(60, rel=0.05), counts

        urgent = await TrainingRun.connect(world.url, f"{run}-urgent", model=world.name("policy"))
        first = len(model.started)
        hurry = asyncio.create_task(_groups(urgent, [world.row("now", _ng_task_index=0)], urgent=True))
        await until(lambda: f"{run}-urgent" in model.started[first:])
        assert model.started[first:] == [f"{run}-urgent"]  # no other ended for it, and none went first
        model.running.pop().set()
        assert len(await hurry) == 1
        await urgent.close()
    finally:
        groups.cancel()
        collecting.cancel()
        await asyncio.wait([groups, collecting])
        await training.close()


async def _groups(training: TrainingRun, rows: list[dict[str, Any]], **options: Any) -> list[list[float]]:
    return [group.rewards async for group in training.run_rollouts(rows, on_untrainable="allow", **options)]
