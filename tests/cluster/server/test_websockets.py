"""A server that is reached through WebSockets, whose library is imported for such an address alone."""

import asyncio
import subprocess
from pathlib import Path

from gymq.bus import Bus
from gymq.cluster.server.process import find_binary
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_S


async def test_an_address_of_websockets_is_connected_to(tmp_path: Path) -> None:
    port, websockets = free_port("127.0.0.1"), free_port("127.0.0.1")
    configuration = tmp_path / "nats-server.conf"
    configuration.write_text(
        f"host: 127.0.0.1\nport: {port}\nwebsocket {{ host: 127.0.0.1, port: {websockets}, no_tls: true }}\n"
    )
    server = await asyncio.create_subprocess_exec(find_binary(), "-c", configuration, stderr=subprocess.DEVNULL)
    try:
        bus = await Bus.connect(f"ws://127.0.0.1:{websockets}", role="test", name="test", timeout_s=DEADLINE_S)
        await bus.close()
    finally:
        server.kill()
        await server.wait()
