from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymq.cluster.server import EmbeddedServer


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def server(store: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(store) as running:
        yield running
