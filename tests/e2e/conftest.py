"""One cluster for all end-to-end tests, with processes and a server that they may kill."""

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymq.bus import Bus
from gymq.launch import Cluster

from .lab import Lab, instances

ACK_WAIT_S = 2.0  # what a killed process had in hand comes again after so long


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    folder = tmp_path_factory.mktemp("cluster")
    async with Cluster(instances(folder), folder=folder, ack_wait_s=ACK_WAIT_S, drain_s=2.0) as cluster:
        bus = await Bus.connect(cluster.url, role="test", name="lab")
        yield Lab(cluster, bus, folder)
        await bus.close()


@pytest.fixture
def run() -> str:
    """The name of a run that exists nowhere else."""
    return f"r{secrets.token_hex(6)}"
