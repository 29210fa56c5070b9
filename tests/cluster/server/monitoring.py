"""Questions to an embedded server about itself, in the name of the only user that may ask them."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats

from gymq.cluster.server import EmbeddedServer
from gymq.cluster.server.config import MONITOR
from tests.support.waiting import DEADLINE_S


def password_of_monitor(store: Path) -> str:
    found = re.search(rf'user: "{MONITOR}", password: "([^"]+)"', (store / "nats-server.conf").read_text())
    assert found is not None
    return found[1]


async def ask(server: EmbeddedServer, store: Path, what: str) -> Any:
    """The answer to VARZ, CONNZ and the like."""
    address = urlsplit(server.url).netloc.rpartition("@")[2]
    async with await nats.connect(f"nats://{MONITOR}:{password_of_monitor(store)}@{address}") as client:
        return json.loads((await client.request(f"$SYS.REQ.SERVER.PING.{what}", timeout=DEADLINE_S)).data)
