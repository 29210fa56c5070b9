"""Real nats-server processes that a test configures, kills and starts again; alone or as a cluster on loopback."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gymq.bus import Bus, BusError
from gymq.cluster.server.process import find_binary
from gymq.processes import parent_death
from tests.support.ports import free_port

HOST = "127.0.0.1"
READY_S = 600.0


class NatsNode:
    """One nats-server with its store in a folder."""

    def __init__(self, name: str, folder: Path, *, max_file: str = "2GB") -> None:
        self.name = name
        self.folder = folder
        self.port = free_port(HOST)
        self.cluster_port = free_port(HOST)
        self._max_file = max_file
        self._routes: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def join(self, nodes: Sequence[NatsNode]) -> None:
        """Be one of these nodes of a cluster, from the next start on."""
        self._routes = [f"nats-route://{HOST}:{node.cluster_port}" for node in nodes]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        with (self.folder / "nats.log").open("ab") as log:
            # It ends with this process, however that ends.
            self._process = subprocess.Popen(
                parent_death.bound([find_binary(), "-c", config]),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.folder)

    def _config(self) -> str:
        cluster = f"""
cluster {{
  name: chaos
  listen: "{HOST}:{self.cluster_port}"
  routes: [{", ".join(self._routes)}]
}}"""
        return f"""
server_name: {self.name}
listen: "{HOST}:{self.port}"
max_payload: 8MB
max_pending: 128MB
feature_flags {{ js_ack_fc_v2: false }}
jetstream {{ store_dir: "store", max_mem: 256MB, max_file: {self._max_file} }}
{cluster if self._routes else ""}
"""


@asynccontextmanager
async def nats_cluster(folder: Path, size: int = 3) -> AsyncIterator[list[NatsNode]]:
    """A cluster that serves JetStream."""
    nodes = [NatsNode(f"n{number}", folder / f"n{number}") for number in range(size)]
    for node in nodes:
        node.join(nodes)
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            await until_ready(node.url)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


@asynccontextmanager
async def nats_node(folder: Path, *, max_file: str) -> AsyncIterator[NatsNode]:
    """A single server with a small disk."""
    node = NatsNode("n0", folder / "n0", max_file=max_file)
    node.start()
    try:
        await until_ready(node.url)
        yield node
    finally:
        node.kill()


async def until_ready(url: str) -> None:
    """Wait until a server answers for JetStream."""
    async with asyncio.timeout(READY_S):
        while True:
            try:
                bus = await Bus.connect(url, role="test", name="ready", timeout_s=3.0)
                try:
                    await bus.js.api("INFO", timeout_s=2.0)
                    return
                finally:
                    await bus.close()
            except BusError:
                await asyncio.sleep(0.2)
