"""Try an Agent class without a server: its loop runs in this process, against a Resources class and a scripted model.

async def test_it_stops_after_the_answer():
    def model(params):
        return reply("Bern")

    async with AgentHarness(MyAgent, Capitals, model) as harness:
        verdict, response = await harness.run({"answer": "Bern", **prompt("Capital?")})
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from gymq.agent import Agent, Rollout, run_to_verdict
from gymq.execution.loading.contract import check_contract
from gymq.execution.sessions import LocalResources
from gymq.processes import KillableProcesses
from gymq.protocol.messages import Call, Close, Generate, Generated, Message, Seed, ToolCall, Verify
from gymq.resources import Resources, Verdict

_REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "resources"},
    "model_server": {"type": "responses_api_models", "name": "model"},
}

AgentT_co = TypeVar("AgentT_co", bound=Agent, default=Agent, covariant=True)
Answer = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]


class AgentHarness(Generic[AgentT_co]):
    """Runs an agent's loop. Failures arrive as `gymq.RolloutError`."""

    def __init__(
        self,
        agent: type[AgentT_co],
        resources: type[Resources[Any]],
        answer: Answer,
        options: dict[str, Any] | None = None,
        *,
        resources_options: dict[str, Any] | None = None,
    ) -> None:
        """Check the classes and prepare their options.

        Args:
            answer: the model: from the parameters of a Responses request, `input` a list of items, to a response, or to
                an awaitable of one.
            options: of the agent, without its references.
            resources_options: of the environment; None: the class needs none.

        Raises:
            InvalidWorker: a class cannot work as it is.
            OptionsError: an option does not fit.
        """
        for worker in (agent, resources):
            check_contract(worker)
        self.agent = agent({**_REFERENCES, **(options or {})})
        self._author = resources() if resources_options is None else resources(resources_options)
        self._processes = KillableProcesses()
        self._worker = LocalResources(self._author, self._processes)
        self._answer = answer

    async def __aenter__(self) -> Self:
        await self._author.start()
        await self.agent.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.agent.stop()
        await self._worker.close_all()
        await self._author.stop()
        self._processes.close()

    async def run(
        self, row: dict[str, Any], *, rollout_id: str = "test/0/0", timeout_s: float = 600.0
    ) -> tuple[Verdict, dict[str, Any]]:
        """Run one rollout of a row.

        Args:
            row: as a line of a data set, with `responses_create_params`.
            timeout_s: limit of the rollout, in seconds.

        Returns:
            The verdict, and the response of all turns.

        Raises:
            RolloutError: the rollout has no verdict.
        """
        rollout = Rollout(
            self,
            rollout_id=rollout_id,
            row=json.dumps(row).encode(),
            options=self.agent.options,
            deadline=asyncio.get_running_loop().time() + timeout_s,
        )
        verdict = await run_to_verdict(self.agent, rollout)
        return verdict, rollout.response

    async def call(self, subject: str, request: Call) -> Message:
        """Return what the agent asks of model and resources; a session's subject is its id."""
        await asyncio.sleep(0)  # concurrent calls are in flight at the same time here too
        if isinstance(request, Generate):
            answered = self._answer(request.params)
            return Generated(response=await answered if inspect.isawaitable(answered) else answered)
        if isinstance(request, Seed):
            return await self._worker.open(request, "*")
        assert isinstance(request, ToolCall | Verify | Close)
        if subject in self._worker.sessions:
            return await self._worker.in_session(subject, request)
        return await self._worker.without_session(request)

    async def send(self, subject: str, request: Call) -> None:
        """Accept a request that expects no reply."""
        await self.call(subject, request)
