"""A small cluster in the test's own process: an agent whose rollouts end as the test says, a model, intake, janitor."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import gymq
from gymq.bus import Bus, streams
from gymq.bus.discovery import ServiceListing
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import DeadLetterEntry, DeadLetters
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.model_runner import ModelRunner
from gymq.execution.services.intake import Intake
from gymq.execution.services.janitor import Janitor
from gymq.protocol.messages import Outcome, Task
from gymq.testing import prompt, reply
from tests.support.waiting import DEADLINE_S


class Parrot(gymq.Model):
    """Answers everything with `done`."""

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        return reply("done")


class Moody(gymq.Agent):
    """Asks the model once; then `end` decides: it returns, or raises what the rollout shall end with."""

    end: Callable[[gymq.Rollout], None]
    journal = True

    def journals(self, rollout: gymq.Rollout) -> bool:
        return self.journal

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        await rollout.respond()
        self.end(rollout)
        return gymq.Verdict(1.0)


def well(_rollout: gymq.Rollout) -> None:
    """The rollout gets its reward."""


def badly(_rollout: gymq.Rollout) -> None:
    raise gymq.RolloutError(gymq.FailureClass.AGENT_FAILED, "the agent stumbled")


class DeadLetterCluster:
    """The cluster, and what tests do with it."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus = bus
        self.js = bus.js
        self.name = name
        self.letters = DeadLetters(bus)
        self.outcomes = OutcomeStore(bus)
        self.agent = Moody({"model_server": {"type": "responses_api_models", "name": f"{name}-model"}}, name=name)
        self.agent.end = well
        self._server = Server(bus, f"{name}-worker")
        self._runner: AgentRunner | None = None
        self._services: list[Intake | Janitor] = [Intake(bus), Janitor(bus)]

    async def open(self) -> None:
        await streams.ensure_agent(self.js, self.name)
        await self._server.start()
        await ModelRunner(Parrot(name=f"{self.name}-model")).serve(self._server)
        for service in self._services:
            await service.start()
        await self.serve()

    async def serve(self) -> None:
        """Begin to take tasks."""
        runner = AgentRunner(self.bus, Calls(self.bus), self.agent, worker=f"{self.name}-worker")
        await runner.start()
        self._runner = runner
        listing = ServiceListing(
            self.bus,
            name=self.name,
            worker=f"{self.name}-worker",
            kind="agents",
            implementation="moody",
            subjects=["-"],
            stats=runner.stats,
        )
        await listing.start()

    async def stop_serving(self) -> None:
        if self._runner is not None:
            await self._runner.drain(5.0)
            self._runner = None

    async def close(self) -> None:
        await self.stop_serving()
        for service in self._services:
            await service.stop()
        await self._server.drain(5.0)

    def task(self, run: str, task_index: int = 0, **members: Any) -> Task:
        row = json.dumps({**prompt("say done"), **members.pop("row", {})}).encode()
        return Task(
            run=run, task_index=task_index, rollout_index=0, agent=self.name, row=row, timeout_s=60.0, **members
        )

    async def submit(self, task: Task, *, urgent: bool = False) -> None:
        await QueueClient(self.bus, submitter="test").submit(task, urgent=urgent, patience_s=10.0)

    async def outcome(self, run: str, task_index: int = 0, *, after: int = 0) -> tuple[int, Outcome]:
        """The outcome of a rollout with its sequence, once there is one beyond a sequence."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self.outcomes.find_outcome(run, task_index, 0)
                if found is not None and found[0] > after:
                    return found
                await asyncio.sleep(0.02)

    async def dead_letters(self, run: str, count: int = 1) -> list[DeadLetterEntry]:
        """The letters of a run, once there are so many and its queue is empty."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = [entry async for entry in self.letters.read(run)]
                if len(found) >= count and not await self.waiting(run):
                    return found
                await asyncio.sleep(0.02)

    async def waiting(self, run: str) -> int:
        """Tasks of a run in the queue, waiting or in work."""
        count = 0
        for subject in (f"gym.tasks.{run}.*", f"gym.urgent.{run}.*"):
            count += sum((await self.js.count_by_subject(streams.TASKS, subject)).values())
        return count

    async def fail(self, run: str, task_index: int = 0) -> DeadLetterEntry:
        """Let a rollout end without a reward; its letter."""
        before, self.agent.end = self.agent.end, badly
        await self.submit(self.task(run, task_index))
        found = await self.dead_letters(run, task_index + 1)
        self.agent.end = before
        return found[-1]


@pytest.fixture
async def cluster(bus: Bus) -> AsyncIterator[DeadLetterCluster]:
    opened = DeadLetterCluster(bus, f"a{secrets.token_hex(6)}")
    await opened.open()
    yield opened
    await opened.close()
