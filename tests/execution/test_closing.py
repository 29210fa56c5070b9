"""A session is closed when no other process would ask it again: after the outcome, or once its replies are recorded."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import gymq
from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.journal_messages import JournalEntry
from gymq.protocol.messages import BlobRef, Task
from gymq.testing import prompt
from tests.support.waiting import DEADLINE_S, until

decode_entry = Decoder(JournalEntry, BlobRef)


class Counting(gymq.Resources[gymq.Row]):
    """Notes what it is asked, and what is stored whenever a session is closed."""

    stateful = True

    def __init__(self, name: str, bus: Bus) -> None:
        super().__init__(name=name)
        self.bus = bus
        self.log: list[str] = []
        self.entries: list[int] = []  # the effects in each entry, as of the first close
        self.has_outcome: list[bool] = []

    async def open(self, row: gymq.Row) -> int:
        self.log.append("open")
        return 0

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, int]) -> float:
        self.log.append("verify")
        return 1.0

    async def close(self, state: int) -> None:
        self.log.append("close")
        stored = [entry async for entry in self.bus.js.read(streams.JOURNAL, subjects.JOURNAL.of(self.name, 0, 0))]
        self.entries = self.entries or [len(decode_entry(entry.data).effects) for entry in stored]
        self.has_outcome.append(await OutcomeStore(self.bus).find(self.name, 0, 0) is not None)


class Once(gymq.Agent):
    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        rollout.response = {"output": []}
        async with rollout.session() as session:
            return await session.verify(rollout.response)


class Twice(Once):
    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        await super().run(rollout)
        return await super().run(rollout)


@asynccontextmanager
async def rolled_out(bus: Bus, made: type[gymq.Agent]) -> AsyncIterator[Counting]:
    """An environment whose sessions an agent has used for one rollout, all of which are closed."""
    name = f"closing-{secrets.token_hex(4)}"
    agent = made({"resources_server": {"type": "resources_servers", "name": name}}, name=name)
    server, processes, environment = Server(bus, "worker"), KillableProcesses(), Counting(name, bus)
    await server.start()
    resources = ResourcesRunner(environment, processes)
    await resources.serve(server)
    await streams.ensure(bus.js, [name])
    runner = AgentRunner(bus, Calls(bus), agent, worker="worker")
    await runner.start()
    try:
        row: Any = msgspec.json.encode(prompt("?"))
        task = Task(run=name, task_index=0, rollout_index=0, agent=name, row=row, timeout_s=60.0)
        await QueueClient(bus).submit(task)
        await until(lambda: runner.num_done == 1 and len(environment.has_outcome) == environment.log.count("open"))
        yield environment
    finally:
        await runner.drain(DEADLINE_S)
        await server.drain(DEADLINE_S)
        await resources.close()
        processes.close()


async def test_a_session_is_closed_after_the_outcome_and_its_verdict_is_no_entry(bus: Bus) -> None:
    async with rolled_out(bus, Once) as environment:
        assert environment.log == ["open", "verify", "close"]
        assert environment.has_outcome == [True]
        assert environment.entries == []


async def test_a_session_is_closed_before_the_next_call_once_its_replies_are_recorded(bus: Bus) -> None:
    async with rolled_out(bus, Twice) as environment:
        assert environment.log == ["open", "verify", "close", "open", "verify", "close"]
        assert environment.has_outcome == [False, True]
        assert environment.entries == [2]  # the seed and the verdict
