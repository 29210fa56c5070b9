"""An agent whose own code goes wrong in the way the row asks for, or asks several things at once."""

import asyncio
import json
import os
import sys
from typing import Any

import gymq


class OddAgent(gymq.Agent):
    """Asks the model once, then does what the row says."""

    async def run(self, rollout: gymq.Rollout) -> Any:
        await rollout.respond()
        match json.loads(rollout.row)["script"]["agent"]:
            case "raise":
                raise KeyError("no such thing")
            case "leave":
                sys.exit(3)
            case "die":
                os._exit(1)
            case "none":
                return None
            case "nan":
                return gymq.Verdict(float("nan"))
            case "own_timeout":
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            case "sleep":
                await asyncio.sleep(60)
            case "vote":
                params = {**rollout.params, "input": rollout.input}
                for turn in range(2):
                    asking = (rollout.ask(params, key=f"turn {turn} sample {n}") for n in range(5))
                    replies = await asyncio.gather(*asking)
                    rollout.output += replies[-1].output
        return gymq.Verdict(1.0)
