"""What `gymq collect --nats` says of a server that does not serve its configuration."""

from pathlib import Path

import pytest

from gymq.bus import Bus
from gymq.cli.actions import joined_cluster
from gymq.cli.actions.joined_cluster import check_served
from gymq.cli.actions.opened_cluster import ClusterAddress
from gymq.cluster.server import EmbeddedServer
from gymq.config import load
from gymq.errors import UsageError

CONFIG = Path(__file__).parents[2] / "workers" / "models" / "simulated_model" / "config.yaml"


async def test_a_server_without_workers_is_named_with_the_cure(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_cluster, "FIND_S", 0.0)
    async with await Bus.connect(own_server.url, role="client", name="test") as bus:
        with pytest.raises(UsageError, match=r"no worker answers at nats://.*; start them with `gymq up --nats URL`"):
            await check_served(bus, load([str(CONFIG)], []), ClusterAddress(own_server.url), is_here=False)
