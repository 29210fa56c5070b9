"""simple_agent: ask the model, run the tools it calls, until it answers without calling any."""

from __future__ import annotations

import pydantic

import gymq


class SimpleAgent(gymq.Agent):
    """Model and tools in turn; the reply that calls no tool ends the rollout."""

    class Options(gymq.AgentOptions):
        max_steps: pydantic.NonNegativeInt | None = None  # model calls; None or 0: no limit
        max_silent_replies: pydantic.PositiveInt = 16  # replies in a row with neither a message nor a call

    def journals(self, rollout: gymq.Rollout) -> bool:
        return rollout.may_call_tools

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        silent = 0
        for _ in rollout.steps(self.options.max_steps):
            reply = await rollout.respond()
            calls = reply.function_calls
            if reply.incomplete or (reply.has_message and not calls):
                return
            silent = 0 if calls else silent + 1
            if silent == self.options.max_silent_replies:
                return
            for call in calls:
                rollout.record(await session.call(call, by_model=True))
