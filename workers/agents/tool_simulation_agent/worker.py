"""tool_simulation_agent: ask the model once; the calls in its reply are the verifier's to play."""

from __future__ import annotations

import gymq


class ToolSimulationAgent(gymq.Agent):
    """One model call, then the verdict; no tool is run and nothing is seeded."""

    class Options(gymq.AgentOptions):
        resources_server: gymq.Reference
        model_server: gymq.Reference

    async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
        await rollout.respond()
        if self.options.skip_verification:
            return gymq.Verdict(self.options.skip_verification_reward, verification_skipped=True)
        async with gymq.Session(rollout, self.options.resources_server.name, seeded=False) as session:
            return await session.verify(rollout.response)
