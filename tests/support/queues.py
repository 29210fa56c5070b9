"""The queues of runs, opened as the one who starts a cluster does."""

import contextlib
from collections.abc import AsyncIterator

from gymq.bus import Bus
from gymq.execution.services.run_queues import RunQueues


@contextlib.asynccontextmanager
async def queues_of_runs(bus: Bus) -> AsyncIterator[None]:
    """Open the queues of runs while the block runs, on a connection that may do everything."""
    queues = RunQueues(bus)
    await queues.start()
    try:
        yield
    finally:
        await queues.stop()
