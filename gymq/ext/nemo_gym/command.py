"""Define the command `gymq bridge`."""

from __future__ import annotations

from dataclasses import replace

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl, ConfigFiles, LogLevel, OptionalPort, Overrides, WorkerSources
from gymq.ext.nemo_gym import DROP_IN


def bridge(
    *overrides: Overrides,
    config: ConfigFiles = (),
    host: str | None = None,
    port: OptionalPort = None,
    nats: ClusterUrl = None,
    drop_in: bool = False,
    log_level: LogLevel = "info",
) -> int:
    """Serve a running cluster over HTTP, with the interface of NeMo Gym.

    Without --config it serves the workers that are running when it starts.

    Args:
        config: configuration file; may be given several times. Its mapping `bridge` has the settings.
        host: address to listen on.
        port: port of the head server.
        drop_in: print the folder with the drop-in replacement for NeMo Gym's Python package, and exit.
    """
    from gymq.cli.shared.configuration import read_config
    from gymq.cluster import event_loop
    from gymq.ext.nemo_gym.interface import serve_until_interrupted

    if drop_in:
        print(DROP_IN)
        return 0
    settings = read_config(WorkerSources(config=config), overrides, with_judges=False)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = replace(settings, tree={**settings.tree, "bridge": {**(settings.tree.get("bridge") or {}), **given}})
    event_loop.run(serve_until_interrupted(settings, nats, log_level))
    return 0


BRIDGE = Command("Operate", "Serve a cluster over HTTP, with NeMo Gym's interface.", "gymq.ext.nemo_gym.command:bridge")
