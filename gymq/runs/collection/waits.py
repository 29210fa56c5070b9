"""What the rollouts of a run wait for, as the workers report it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymq.bus import Bus, BusError
from gymq.bus.discovery import UnservedAgents, find_workers
from gymq.bus.queue.client import QueueClient
from gymq.bus.rpc.process_reports import ClusterReport
from gymq.protocol import subjects
from gymq.runs.collection.progress import Progress

WATCH_EVERY_S = 3.0
UNSERVED_S = 6.0  # without a process that serves an agent, after which this is shown


class Waits:
    """Notes in the progress of a run what its calls and tasks wait for.

    Attributes:
        agents: those that have tasks of the run.
    """

    def __init__(self, bus: Bus, progress: Progress) -> None:
        self.agents: set[str] = set()
        self._bus = bus
        self._queue = QueueClient(bus)
        self._progress = progress
        self._unserved = UnservedAgents(bus, UNSERVED_S)
        self._retries: dict[tuple[str, str], int] = {}  # of each model process, when it answered last

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ask the workers every few seconds while the block runs, and once more after it for their last calls."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
        await self._look(wait_s=0.2)

    async def _watch(self) -> None:
        while True:
            await self._look(wait_s=0.5)
            await asyncio.sleep(WATCH_EVERY_S)

    async def _look(self, *, wait_s: float) -> None:
        """Ask the workers what the run waits for; each has `wait_s` seconds to answer."""
        progress = self._progress
        if not self._bus.is_connected:
            progress.waits, progress.slowest = {"the NATS server is away": progress.in_flight}, None
            return
        try:
            report = ClusterReport(progress.run, await find_workers(self._bus, wait_s=wait_s))
            waits = report.waits + self._bus.unstored
            waits |= await self._unserved_tasks(self.agents - report.agents)
        except BusError:
            return
        progress.waits = dict(waits.most_common(4))
        progress.slowest = report.slowest
        for process, retries in report.retries.items():
            progress.model_retries += max(0, retries - self._retries.setdefault(process, retries))
            self._retries[process] = retries

    async def _unserved_tasks(self, silent: set[str]) -> Counter[str]:
        """Return how many tasks wait for agents that no worker serves.

        Args:
            silent: agents that did not answer, of which some are only too busy.
        """
        if not (unserved := await self._unserved.among(silent)):
            return Counter()
        queued = await self._queue.queued_by_agent(self._progress.run)
        waiting = sum(queued[subjects.instance(agent)] for agent in unserved)
        more = f" and {len(unserved) - 2} more agents" if len(unserved) > 3 else ""
        named = ", ".join(unserved[:2] if more else unserved)
        return +Counter({f"no worker serves {named}{more}": waiting})
