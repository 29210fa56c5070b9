"""Kills or freezes a random process of a cluster, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

ROLES = ("agent", "model", "resources", "services", "fork server", "nats", "collector")
KILLS = 0.6  # share of the faults that kill; the others freeze
LONGEST_FREEZE_S = 4.0


@dataclass(frozen=True)
class Fault:
    """A process that was killed or frozen."""

    at: float  # Unix time, seconds
    role: str
    pid: int
    frozen_s: float  # 0: killed

    @property
    def what(self) -> str:
        return f"{self.role} {'frozen' if self.frozen_s else 'killed'}"


class FaultInjector:
    """Its choices come from the seed alone; which process they hit depends on which are alive."""

    def __init__(
        self, seed: int, pids: Callable[[str], list[int]], every_s: float, on_kill: Callable[[], object] = lambda: None
    ) -> None:
        """
        Args:
            pids: the processes of a role that are alive now.
            every_s: seconds between two faults.
            on_kill: called when workers are killed, before others take their place.
        """
        self._rng = random.Random(f"monkey {seed}")
        self._pids = pids
        self._every_s = every_s
        self._on_kill = on_kill
        self._resuming: set[asyncio.Task[None]] = set()
        self.faults: list[Fault] = []

    async def run(self) -> None:
        """Inject faults until cancelled; then resume every frozen process."""
        try:
            while True:
                await asyncio.sleep(self._every_s)
                self._inject()
        finally:
            for resuming in self._resuming:
                resuming.cancel()
            if self._resuming:
                await asyncio.wait(self._resuming)

    def _inject(self) -> None:
        role = self._rng.choice(ROLES)
        which, kills, freeze_s = self._rng.random(), self._rng.random() < KILLS, self._rng.uniform(1, LONGEST_FREEZE_S)
        alive = self._pids(role)
        if not alive:
            return
        pid = alive[int(which * len(alive))]
        try:
            os.kill(pid, signal.SIGKILL if kills else signal.SIGSTOP)
        except ProcessLookupError:
            return
        self.faults.append(Fault(time.time(), role, pid, 0.0 if kills else freeze_s))
        if kills and role not in ("nats", "collector"):
            self._on_kill()
        if not kills:
            self._resuming.add(asyncio.create_task(_resume(pid, freeze_s)))

    def counts(self) -> Counter[str]:
        """How often each kind of fault was injected."""
        return Counter(fault.what for fault in self.faults)


async def _resume(pid: int, after_s: float) -> None:
    try:
        await asyncio.sleep(after_s)
    finally:
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile
            os.kill(pid, signal.SIGCONT)
