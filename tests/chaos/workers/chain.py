"""A state that depends on every tool call and on their order; each call that runs is noted in a file."""

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymq


class Row(gymq.Row):
    values: list[int]
    grade: float
    tool_s: list[float]
    verify_s: float
    kills: str | None = None  # "tool" or "verify": what ends the process


@dataclass
class State:
    row: Row
    name: str = field(default_factory=lambda: secrets.token_hex(6))  # of this session, in the log
    turns: list[int] = field(default_factory=list)
    digest: int = 0


class _Chain(gymq.Resources[Row, State]):
    """Pays the grade that the policy says, if the state is what exactly one run of each tool call makes of it.

    Any other state is worth -1, which no row is.
    """

    class Options(gymq.WorkerOptions):
        log: (
            Path  # folder; in it one file a process, one line `session turn` a tool call, "stopped" behind it if it was
        )

    max_concurrency = 100_000

    async def start(self) -> None:
        path = self.options.log / f"tools-{os.getpid()}"
        self._log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def open(self, row: Row) -> State:
        return State(row)

    @gymq.tool
    async def push(self, state: State, turn: int, value: int) -> dict[str, Any]:
        """Mix a value into the digest."""
        os.write(self._log, f"{state.name} {turn}\n".encode())
        if state.row.kills == "tool":
            os._exit(1)
        try:
            await asyncio.sleep(state.row.tool_s[turn])
        except asyncio.CancelledError:
            os.write(self._log, f"{state.name} {turn} stopped\n".encode())
            raise
        state.turns.append(turn)
        state.digest = (state.digest * 31 + value) % (1 << 31)
        return {"digest": state.digest} | self.further(state)

    def further(self, state: State) -> dict[str, Any]:
        return {}

    async def verify(self, request: gymq.VerifyRequest[Row, State]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        row = request.row
        await asyncio.sleep(row.verify_s)
        if row.kills == "verify":
            os._exit(1)
        digest = 0
        for value in row.values:
            digest = (digest * 31 + value) % (1 << 31)
        right = state.turns == list(range(len(row.values))) and state.digest == digest
        right = right and request.reply_text == f"grade {row.grade}"
        return gymq.Verdict(row.grade if right else -1.0)


class Replayable(_Chain):
    """The same calls lead to the same outputs, so a lost session is rebuilt elsewhere."""

    replayable = True


class Restarting(_Chain):
    """Outputs differ from session to session, so a rollout whose session is lost starts over."""

    def further(self, state: State) -> dict[str, Any]:
        return {"session": state.name}
