"""Stands in for the bus: answers an agent's requests in order and notes them."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from gymq.workers.agents.simple_agent.worker import SimpleAgent

from gymq.agent import Rollout
from gymq.protocol import subjects
from gymq.protocol.messages import (
    Call,
    Close,
    Generate,
    Generated,
    Message,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.responses import FunctionCall
from gymq.testing import function_call, reply

SESSION = subjects.SESSION.of("worker", "session")
OPTIONS = {
    "model_server": {"type": "responses_api_models", "name": "policy"},
    "resources_server": {"type": "resources_servers", "name": "env"},
}

Answer = Message | Exception


class Script:
    """Answers with what it was given, kind by kind; the last answer of a kind is repeated."""

    def __init__(
        self,
        *replies: dict[str, Any] | Exception,
        seeded: Sequence[Answer] | None = None,
        tools: Sequence[Answer] | None = None,
        verified: Sequence[Answer] | None = None,
    ) -> None:
        self.asked: list[tuple[str, Call]] = []
        self.told: list[tuple[str, Call]] = []
        self._answers: dict[type[Call], list[Answer]] = {
            Generate: [_generated(answer) for answer in replies],
            Seed: [*seeded] if seeded else [Seeded(session=SESSION)],
            ToolCall: [*tools] if tools else [ToolResult(output="sunny")],
            Verify: [*verified] if verified else [Verified(reward=1.0)],
        }

    async def call(self, subject: str, request: Call) -> Message:
        await asyncio.sleep(0)  # as any call, it lets others run
        # Copied, since the agent goes on to extend the lists of its request.
        self.asked.append((subject, _copied(request)))
        answers = self._answers[type(request)]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send(self, subject: str, request: Call) -> None:
        self.told.append((subject, request))

    def of(self, kind: type[Call]) -> list[Any]:
        """The requests of one kind."""
        return [request for _, request in self.asked if isinstance(request, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(request).__name__ for _, request in self.asked]

    @property
    def is_closed(self) -> bool:
        return [type(request) for _, request in self.told] == [Close]


def agent(**options: Any) -> SimpleAgent:
    return SimpleAgent({**OPTIONS, **options})


def rollout(
    script: Script, of: SimpleAgent, row: dict[str, Any] | None = None, *, timeout_s: float = 60.0, **options: Any
) -> Rollout:
    content = {"responses_create_params": {"input": "What is the weather?"}} if row is None else row
    return Rollout(
        script,
        rollout_id="run/0/0",
        row=json.dumps(content).encode(),
        options=of.options,
        deadline=asyncio.get_running_loop().time() + timeout_s,
        **options,
    )


def weather(number: int = 1, arguments: Any = None) -> FunctionCall:
    return function_call("weather", {"city": "Bern"} if arguments is None else arguments, f"call_{number}")


def said(text: str = "It is sunny.") -> dict[str, Any]:
    return reply(text)


def _generated(answer: dict[str, Any] | Exception) -> Answer:
    return answer if isinstance(answer, Exception) else Generated(response=answer)


def _copied(request: Call) -> Call:
    if isinstance(request, Generate):
        params = json.loads(json.dumps(request.params))
        return Generate(rollout=request.rollout, timeout_s=request.timeout_s, params=params, session=request.session)
    return request
