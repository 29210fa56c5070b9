"""The path of a rollout: few frames lie between a pulled task and the loop that an author writes."""

import asyncio
import secrets
import sys
from types import FrameType
from typing import Any

import msgspec

import gymq
from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution.agent_runner import AgentRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.processes import KillableProcesses
from gymq.protocol.messages import Task
from gymq.testing import prompt
from tests.support.waiting import DEADLINE_S


class Right(gymq.Resources[gymq.Row]):
    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> float:
        return 1.0


class Looks(gymq.Agent):
    """Notes the functions that lead to its loop, the innermost first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stack: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        frame: FrameType | None = sys._getframe()
        found = []
        while frame is not None:
            found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        self.stack.set_result(found)


async def test_an_authors_loop_is_at_most_six_frames_below_the_task(bus: Bus) -> None:
    name = f"looks-{secrets.token_hex(4)}"
    references = {"resources_server": {"type": "resources_servers", "name": f"{name}-env"}}
    agent = Looks(references, name=name)
    server, processes = Server(bus, "worker"), KillableProcesses()
    await server.start()
    await ResourcesRunner(Right(name=f"{name}-env"), processes).serve(server)
    await streams.ensure(bus.js, [name])
    runner = AgentRunner(bus, Calls(bus), agent, worker="worker")
    await runner.start()
    try:
        row = msgspec.json.encode(prompt("?"))
        await QueueClient(bus).submit(
            Task(run=name, task_index=0, rollout_index=0, agent=name, row=row, timeout_s=60.0)
        )
        async with asyncio.timeout(DEADLINE_S):
            stack = await agent.stack
    finally:
        await runner.drain(5.0)
        await server.drain(5.0)
        processes.close()
    path = stack[: stack.index("TaskQueue._work") + 1]
    assert path[0] == "Looks.converse"
    assert len(path) <= 6, path
