"""Define the command `gymq view`."""

from __future__ import annotations

import sys
from pathlib import Path

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import LogLevel, NatsUrl, OptionalPort
from gymq.errors import UsageError


def view(
    *files: Path,
    host: str = "127.0.0.1",
    port: OptionalPort = None,
    nats: NatsUrl = None,
    export: Path | None = None,
    run: list[str] | None = None,
    tokenizer: Path | None = None,
    log_level: LogLevel = "error",
) -> int:
    """Show runs and rollouts in a browser: those stored in this folder, those of a cluster, or those in files.

    It needs no configuration and no workers. It may be opened before the first run, and stays open
    while clusters start, stop or crash in this folder.

    Args:
        files: rollouts to show, each file as a run: outputs of `gymq collect` or of NeMo Gym, logs of Inspect,
            trajectories in ATIF, results of verifiers; default: what is stored in this folder.
        host: address to listen on; the default accepts connections from this machine only.
        port: port to listen on; default: 11800, or the next free one.
        nats: URL of a cluster whose runs to show.
        export: write the pages to this folder, for a browser to open without a server, and exit.
        run: a run to export; may be repeated; default: all of them.
        tokenizer: tokenizer.json of the policy, or the folder with it: tokens are shown as text.
    """
    import asyncio

    from gymq.ext.shared.addresses import is_loopback
    from gymq.ext.viewer.serving import export_viewer, run_viewer

    if run and export is None:
        raise UsageError("--run chooses what --export writes: it needs --export DIR")
    if files and nats is not None:
        raise UsageError("FILE and --nats cannot be given together: the viewer shows either a file or a cluster")
    if export is not None:
        return asyncio.run(export_viewer(files, nats, export, run, tokenizer, log_level))
    if not is_loopback(host):
        print(f"gymq: warning: the viewer has no key: anyone who can reach {host} can read all runs", file=sys.stderr)
    asyncio.run(run_viewer(files, host, port, nats, tokenizer, log_level))
    return 0


VIEW = Command("Read", "Show runs and rollouts in a browser.", "gymq.ext.viewer.command:view")
