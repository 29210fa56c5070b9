"""Files of rollouts in a store of their own, so that a command reads them as it reads stored runs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gymq.bus import Bus, streams
from gymq.cli.shared.cluster import connected
from gymq.cli.shared.run_summary import print_older_rewards
from gymq.cluster.server import EmbeddedServer
from gymq.data.run_files import RunFiles
from gymq.ext.rollout_files.importing import Imported, import_rollouts
from gymq.render import printable
from gymq.runs.older_rewards import older_rewards


@asynccontextmanager
async def imported(files: Sequence[Path], *, name: str) -> AsyncIterator[tuple[Bus, list[Imported]]]:
    """Open a temporary store that holds the rollouts of files, each as a run, while the block runs.

    Lines that are not rollouts, and verifiers that changed since, are named on standard error.

    Args:
        name: of the connection: the command.
    """
    with tempfile.TemporaryDirectory(prefix="gymq-files-") as folder:
        async with EmbeddedServer(Path(folder) / "jetstream") as server, connected(server.url, name=name) as bus:
            await streams.ensure(bus.js, [])
            runs: list[Imported] = []
            for file in files:
                found = await import_rollouts(bus, file, [run.run for run in runs])
                runs.append(found)
                for problem in found.problems:
                    print(f"gymq: warning: {printable(problem)}", file=sys.stderr)
                print_older_rewards(older_rewards(RunFiles(file)))
            yield bus, runs
