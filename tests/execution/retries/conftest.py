"""A model and a verifier on the bus that fail as often as the test says, and short pauses."""

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution.attempts import Attempts
from gymq.execution.model_runner import ModelRunner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import RETRIES, Retries, Retry
from gymq.processes import KillableProcesses
from gymq.protocol.messages import Outcome, Task
from gymq.testing import prompt, reply

SHORT_S = 0.01

Change = Callable[..., None]


class Failing:
    """Raises each of some errors once, then nothing more; counts how often it was asked."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)


class Model(gymq.Model):
    fail: Failing

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        self.fail()
        return reply("done")


class Verifier(gymq.Resources[gymq.Row]):
    fail: Failing

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        self.fail()
        return gymq.Verdict(1.0)


class Agent(gymq.Agent):
    """Asks the model once; then its own code fails, if it shall."""

    fail: Failing

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        await rollout.respond()
        self.fail()


class Bench:
    """A model and a verifier that are served, and an agent between them."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.name = f"b{secrets.token_hex(6)}"
        self.model = Model(name=f"{self.name}-model")
        self.verifier = Verifier(name=f"{self.name}-verifier")
        self.agent = Agent(
            {
                "model_server": {"type": "responses_api_models", "name": self.model.name},
                "resources_server": {"type": "resources_servers", "name": self.verifier.name},
            },
            name=self.name,
        )
        for worker in (self.model, self.verifier, self.agent):
            worker.fail = Failing()
        self.server = Server(bus, f"{self.name}-worker")
        self._processes = KillableProcesses()

    async def serve_model(self) -> None:
        await ModelRunner(self.model).serve(self.server)

    async def serve_verifier(self) -> None:
        await ResourcesRunner(self.verifier, self._processes).serve(self.server)

    def task(self, timeout_s: float = 60.0) -> Task:
        row = msgspec.json.encode(prompt("say done"))
        return Task(run=self.name, task_index=0, rollout_index=0, agent=self.name, row=row, timeout_s=timeout_s)

    async def outcome(self, *, timeout_s: float = 60.0, num_delivered: int = 1) -> Outcome:
        """What all the attempts at one rollout come to."""
        attempts = Attempts(self.bus, Calls(self.bus), self.agent, worker="w")
        outcome, _ = await attempts.outcome(self.task(timeout_s), num_delivered)
        return outcome

    async def close(self) -> None:
        await self.server.drain(5.0)
        self._processes.close()


@pytest.fixture
async def bench(bus: Bus, change: Change) -> AsyncIterator[Bench]:
    made = Bench(bus)
    await made.server.start()
    await made.serve_model()
    await made.serve_verifier()
    yield made
    await made.close()


@pytest.fixture
async def idle_bench(bus: Bus, change: Change) -> AsyncIterator[Bench]:
    """One that serves nothing yet."""
    made = Bench(bus)
    await made.server.start()
    yield made
    await made.close()


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Makes all pauses of the table short, and changes a column of it: `change("rollout", tries=5)`."""

    def apply(column: str, **members: Any) -> None:
        for failure_class, retries in list(RETRIES.items()):
            retry: Retry | None = getattr(retries, column)
            if retry is not None:
                monkeypatch.setitem(RETRIES, failure_class, replace(retries, **{column: replace(retry, **members)}))

    for column in Retries.__dataclass_fields__:
        apply(column, first_pause_s=SHORT_S, longest_pause_s=SHORT_S)
    return apply
