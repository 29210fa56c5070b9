"""What a worker process receives when it starts, and the lines that it answers with."""

from __future__ import annotations

import msgspec

from gymq.protocol.instances import Instance

READY = "ready"

# How the lines begin that a process that starts workers reads, beside those of the fork server.
ANSWER, SUSPECTS = b"answer ", b"suspects "


class StartContext(msgspec.Struct):
    """What a process has before it gets its spec."""

    folder: str  # its current one
    environment: dict[str, str]
    refused: dict[str, str] = {}  # why suspect calls are refused (`gymq.bus.rpc.quarantine`), by the rollout


class ProcessSpec(msgspec.Struct):
    """The workers and settings of one process."""

    url: str
    role: str
    instances: list[Instance] = []
    services: bool = False  # intake, janitor and profiler
    log_level: str = "info"
    drain_s: float = 30.0
    variables: dict[str, str] = {}  # for its environment
    joins: bool = True  # whether other processes may be there, which its version has to meet
