"""An agent that one row kills, process and all."""

import json
import os

import gymq


class FragileAgent(gymq.Agent):
    """One model call; a row with `kills: agent` then ends the process."""

    def journals(self, rollout: gymq.Rollout) -> bool:
        return False

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        await rollout.respond()
        if json.loads(rollout.row).get("kills") == "agent":
            os._exit(1)
