"""The chaos monkey: kills or freezes a random process of a cluster, again and again."""

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

ROLES = ("agent", "model", "resources", "services", "nats", "collector")
EVERY_S = 1.0
KILLS = 0.6  # share of the faults that kill; the others freeze
LONGEST_FREEZE_S = 4.0


@dataclass(frozen=True)
class Fault:
    """One thing the monkey did."""

    at: float  # Unix time, seconds
    role: str
    pid: int
    frozen_s: float  # 0: killed

    @property
    def what(self) -> str:
        return f"{self.role} {'frozen' if self.frozen_s else 'killed'}"


class Monkey:
    """Its choices come from the seed alone; which process they hit depends on which are alive."""

    def __init__(self, seed: int, pids: Callable[[str], list[int]]) -> None:
        """
        Args:
            pids: the processes of a role that are alive now.
        """
        self._rng = random.Random(f"monkey {seed}")
        self._pids = pids
        self._thawing: set[asyncio.Task[None]] = set()
        self.faults: list[Fault] = []

    async def run(self) -> None:
        """Do harm until cancelled; then everything frozen goes on."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                self._strike()
        finally:
            for thawing in self._thawing:
                thawing.cancel()
            if self._thawing:
                await asyncio.wait(self._thawing)

    def _strike(self) -> None:
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
        if not kills:
            self._thawing.add(asyncio.create_task(_thaw(pid, freeze_s)))

    def counts(self) -> Counter[str]:
        """How often what was done to which role."""
        return Counter(fault.what for fault in self.faults)


async def _thaw(pid: int, after_s: float) -> None:
    try:
        await asyncio.sleep(after_s)
    finally:
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile
            os.kill(pid, signal.SIGCONT)
