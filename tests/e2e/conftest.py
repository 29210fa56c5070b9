"""One cluster for all end-to-end tests, with processes and a server that they may kill."""

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymq.bus import Bus
from gymq.cluster.launch import Cluster

from .running_cluster import RunningCluster, instances

ACK_WAIT_S = 2.0  # when the tasks of a killed process are delivered again


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(instances(folder), folder=folder, ack_wait_s=ACK_WAIT_S, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="test")
        yield RunningCluster(cluster, bus, folder)
        await bus.close()


@pytest.fixture
def run() -> str:
    """The name of a run that exists nowhere else."""
    return f"r{secrets.token_hex(6)}"
