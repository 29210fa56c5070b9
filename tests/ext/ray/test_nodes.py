"""Workers on the nodes of a Ray cluster: they serve from there, and from another node when theirs is lost."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.discovery import find_workers
from gymq.cluster.launch import Cluster, Deployment
from gymq.cluster.server import EmbeddedServer
from gymq.errors import UsageError
from gymq.ext.ray.nodes import RayNodes
from gymq.protocol.instances import Instance

from .local_cluster import local_cluster

DEADLINE_S = 600.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without room for workers, and two nodes with."""
    with local_cluster(2) as made:
        yield made


def models() -> list[Instance]:
    return [Instance(name, "models", "simulated_model", {"num_workers": 2}) for name in ("policy", "judge")]


async def workers(url: str) -> set[str]:
    bus = await Bus.connect(url, role="client", name="test")
    try:
        return {found["id"] for found in await find_workers(bus, wait_s=1.0)}
    finally:
        await bus.close()


async def test_workers_serve_from_nodes_and_are_placed_again_when_one_is_lost(
    nodes: Any, own_server: EmbeddedServer, tmp_path: Path
) -> None:
    ray_nodes = RayNodes(nodes.address)
    placed = models()[:1]
    async with Cluster(
        placed, folder=tmp_path, deployment=Deployment(own_server.url, services=False), new_child=ray_nodes.child
    ) as cluster:
        before = await workers(own_server.url)
        assert len(before) == 2
        assert cluster.not_serving == []
        lost = nodes.workers.pop()
        await asyncio.to_thread(nodes.remove_node, lost, allow_graceful=False)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                after = await workers(own_server.url)
                if len(after) == 2 and after != before and not cluster.not_serving:
                    break
    assert len(after & before) == 1  # that of the node that stayed
    assert await workers(own_server.url) == set()


async def test_a_worker_that_cannot_start_on_its_node_says_why(
    nodes: Any, own_server: EmbeddedServer, tmp_path: Path
) -> None:
    wrong = [Instance("policy", "models", "simulated_model", {"skill": 7})]
    with pytest.raises(UsageError, match="skill"):
        async with Cluster(
            wrong,
            folder=tmp_path,
            deployment=Deployment(own_server.url, services=False),
            new_child=RayNodes(nodes.address).child,
        ):
            pass


def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="pip install"):
        RayNodes("auto")
