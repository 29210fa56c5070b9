"""A cluster of three NATS servers: any one may be killed and lose its disk in the middle of a run."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus, BusError
from tests.support.waiting import DEADLINE_S, until

from .experiment import run
from .fault_injector import Fault
from .nats_nodes import NatsNode, nats_cluster, until_ready
from .promises import judge
from .scenario import Scenario

ACK_WAIT_S = 15.0  # well above the seconds in which a cluster finds another leader
SCENARIO = Scenario(seed=7, single=1200, stateful=240)


class LostDisks:
    """Kills each node in turn, deletes its store, and starts it again; the next one when all copies are there again."""

    def __init__(self, nodes: list[NatsNode], effects: Path) -> None:
        self.faults: list[Fault] = []
        self._nodes = nodes
        self._effects = effects

    async def run(self) -> None:
        await until(lambda: any(path.stat().st_size for path in self._effects.glob("model-*")))
        for node in self._nodes:
            node.kill()
            self.faults.append(Fault(time.time(), "nats", 0, 0.0))
            node.wipe()
            await asyncio.sleep(2)
            node.start()
            await until_ready(node.url)
            await until_current(node.url)


async def until_current(url: str) -> None:
    """Wait until every stream and consumer has all its copies up to date."""
    bus = await Bus.connect(url, role="test", name="copies")
    js = bus.js
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                streams = (await js.api("STREAM.LIST"))["streams"]
                groups = [stream["cluster"] for stream in streams]
                for stream in streams:
                    consumers = await js.api(f"CONSUMER.LIST.{stream['config']['name']}")
                    groups += [consumer["cluster"] for consumer in consumers["consumers"]]
                if all(is_current(group) for group in groups):
                    break
            except BusError:
                pass
            await asyncio.sleep(0.2)
    await bus.close()


def is_current(group: dict[str, Any]) -> bool:
    replicas = group.get("replicas", [])
    return bool(group.get("leader")) and len(replicas) == 2 and all(replica["current"] for replica in replicas)


@pytest.mark.nightly
async def test_nodes_that_die_and_lose_their_disks_cost_nothing(tmp_path: Path) -> None:
    async with nats_cluster(tmp_path / "nats") as nodes:
        injector = LostDisks(nodes, tmp_path / "run" / "effects")
        url = ",".join(node.url for node in nodes)
        remains = await run(SCENARIO, tmp_path / "run", injector=injector, url=url, replicas=3, ack_wait_s=ACK_WAIT_S)
    verdict = judge(SCENARIO, remains)
    print(verdict)
    assert verdict.kept, verdict
    assert injector.faults
