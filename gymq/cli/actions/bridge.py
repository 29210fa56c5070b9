"""The work of `gymq bridge`."""

from __future__ import annotations

import asyncio

from gymq.cli.shared.cluster import LOGS, running_url
from gymq.cli.shared.configured_bridge import bridge_for
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cluster import logs
from gymq.config import Config


async def serve(config: Config, nats: str | None, log_level: str) -> None:
    logs.configure("bridge", log_level)
    with until_interrupted():
        async with bridge_for(config, await running_url(nats), LOGS) as address:
            print(f"{address}\nCtrl-C stops it", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("stopping: requests in flight are finished", flush=True)
