"""gymnasium_agent: the model's message is an action, and what the environment answers is the next user message."""

from __future__ import annotations

import json
from typing import Any

import pydantic

import gymq
from gymq import responses
from gymq.protocol.messages import FailureClass, Stage


class GymnasiumAgent(gymq.Agent):
    """Model and environment in turn, until the environment ends the episode or cuts it off."""

    class Options(gymq.AgentOptions):
        max_steps: pydantic.NonNegativeInt | None = None  # model calls; None or 0: no limit

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        first = (await _ask(session, "reset", {}))["observation"]
        if first:
            rollout.record(responses.user_message(first))
        for _ in rollout.steps(self.options.max_steps):
            reply = await rollout.respond()
            if reply.incomplete:
                return  # a truncated message cannot be an action
            step = await _ask(session, "step", {"action": responses.output_text(reply.response)})
            rollout.record(responses.user_message(step["observation"]))
            if step["terminated"] or step["truncated"]:
                return


async def _ask(session: gymq.Session, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Make a call of the environment's interface."""
    output = (await session.call(responses.function_call(name, arguments, call_id=name)))["output"]
    answer: Any = json.loads(output) if isinstance(output, str) and output.startswith("{") else output
    if not isinstance(answer, dict) or "observation" not in answer:
        text = f"the environment is not one that gymnasium_agent can play, it answered {name} with {output!r:.300}"
        raise gymq.RolloutError(FailureClass.COMPONENT_FAILED, text, stage=Stage.TOOL)
    return answer
