"""Define the command `gymq bridge`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gymq.cli.shared.parameters import ClusterUrl, ConfigFiles, LogLevel, OptionalPort, Overrides, WorkerSources


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
    import gymq.bridge
    from gymq.cli.actions.bridge import serve
    from gymq.cli.shared.configuration import read_config
    from gymq.cluster import event_loop

    if drop_in:
        print(Path(gymq.bridge.__file__).parent / "drop_in")
        return 0
    settings = read_config(WorkerSources(config=config), overrides, with_judges=False)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = replace(settings, tree={**settings.tree, "bridge": {**(settings.tree.get("bridge") or {}), **given}})
    event_loop.run(serve(settings, nats, log_level))
    return 0
