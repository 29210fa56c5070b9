"""The work of `gymq env-server`."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from gymq.cli.shared.cluster import running_url
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cluster import logs
from gymq.errors import UsageError
from gymq.ext.shared.addresses import is_loopback
from gymq.ext.verifiers.env_server import EnvServer
from gymq.trainer import TrainingRun


async def serve(address: str, run: str | None, nats: str | None, log_level: str, *, exposed: bool) -> None:
    """Serve until the command is interrupted."""
    check_address(address, exposed=exposed)
    logs.configure("env-server", log_level)
    with until_interrupted():
        training = await TrainingRun.connect(await running_url(nats), run or f"prime-rl-{secrets.token_hex(4)}")
        try:
            async with EnvServer(training, address) as server:
                print(f"rollouts of run {training.run} at {server.address}\nCtrl-C stops it", flush=True)
                await server.wait()
        finally:
            await training.close()


def check_address(address: str, *, exposed: bool) -> None:
    """Check an address to listen on."""
    try:
        parts = urlsplit(address)
        host = parts.hostname if parts.scheme == "tcp" and parts.port is not None else None
    except ValueError:
        host = None
    if host is None:
        raise UsageError(f"--address: {address!r} is not of the form tcp://HOST:PORT")
    if not exposed and not is_loopback(host):
        raise UsageError(
            f"--address: other machines reach {host}, and every program there could roll out rows: the protocol has no "
            "passwords. Use tcp://127.0.0.1:PORT, or add --exposed"
        )
