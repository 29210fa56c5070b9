"""Address of the head server."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_SERVER_KEY_NAME = "head_server"


@dataclass
class BaseServerConfig:
    """An address."""

    host: str
    port: int
