"""Define the command `gymq bridge`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gymq.cli.parameters import ConfigFiles, NatsUrl, WorkerSources


def bridge(
    *overrides: str,
    config: ConfigFiles = (),
    host: str | None = None,
    port: int | None = None,
    nats: NatsUrl = None,
    drop_in: bool = False,
    log_level: str = "info",
) -> int:
    """Serve a running cluster over HTTP, with the interface of NeMo Gym.

    Without --config it serves the workers that are running when it starts.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        config: configuration file; may be given several times. Its mapping `bridge` has the settings.
        host: address to listen on.
        port: port of the head server.
        nats: URL of the cluster; default: the one running in this folder.
        drop_in: print the folder with the drop-in replacement for NeMo Gym's Python package, and exit.
        log_level: debug, info, warning or error.
    """
    import gymq.bridge
    from gymq.cli.actions.bridge import serve
    from gymq.cli.configuration import read_config
    from gymq.cluster import event_loop

    if drop_in:
        print(Path(gymq.bridge.__file__).parent / "drop_in")
        return 0
    settings = read_config(WorkerSources(config=config), overrides, with_judges=False)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = replace(settings, tree={**settings.tree, "bridge": {**(settings.tree.get("bridge") or {}), **given}})
    event_loop.run(serve(settings, nats, log_level))
    return 0
