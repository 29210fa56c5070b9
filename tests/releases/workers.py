"""The workers of the recorded run: a model that calls a tool and is done, an environment that adds up."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymq
from gymq.testing import function_call, reply


class Policy(gymq.Model):
    """Calls `add` once, then says that it is done."""

    class Options(gymq.WorkerOptions):
        calls: Path  # one line a call: the rollout's name
        pause_s: float = 0.0  # before each reply
        hangs: bool = False  # in the second turn of the rows whose input is odd

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        with self.options.calls.open("a") as file:
            file.write(f"{request.rollout}\n")
        await asyncio.sleep(self.options.pause_s)
        items = request.params["input"]
        if not any(item.get("type") == "function_call" for item in items):
            return reply(function_call("add", {"amount": 3}, "call_0"))
        if self.options.hangs and int(items[0]["content"]) % 2:
            await asyncio.Event().wait()
        return reply("done")


class Row(gymq.Row):
    expected: int


@dataclass
class State:
    total: int = 0


class Adding(gymq.Resources[Row, State]):
    """The reward is 1 if the sum is the expected one."""

    replayable = True

    async def open(self, _row: Row) -> State:
        return State()

    @gymq.tool
    async def add(self, state: State, amount: int) -> int:
        """Add to the sum."""
        state.total += amount
        return state.total

    async def verify(self, request: gymq.VerifyRequest[Row, State]) -> gymq.Verdict:
        assert request.state is not None
        return gymq.Verdict(reward=float(request.state.total == request.row.expected))
