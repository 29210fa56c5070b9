"""Versions that the engines of a trained model name themselves, such as SGLang's: each becomes an update."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from gymq.bus import Bus
from gymq.bus.weights.known import told_versions
from gymq.bus.weights.pushing import announce, newest
from gymq.errors import UsageError

EVERY_S = 1.0  # at most


class ToldVersions:
    """Announces what engines name, so that it has a place among the updates."""

    def __init__(self, bus: Bus, model: str) -> None:
        self._bus = bus
        self._model = model
        self._looking = asyncio.Lock()
        self._look_at = -math.inf  # on the event loop's clock
        self._is_over = False

    def stop(self) -> None:
        """Announce no more: the program does it itself."""
        self._is_over = True

    async def announce(self) -> None:
        """Announce the versions that engines report and that are not announced yet."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._is_over or now < self._look_at:
                return
            told = await told_versions(self._bus, self._model)
            if told is None:
                self._is_over = True
            if not told:
                return
            self._look_at = now + EVERY_S
            weights = await self._bus.retry_read(lambda: newest(self._bus, self._model))
            known = [] if weights is None else [*weights.before, weights.policy_version]
            new = [version for version in told if version not in known]
            if len(told) == 1 and known[-1:] != told:
                new = told  # a trainer that went back gives its engines older weights again
            for version in sorted(new, key=lambda version: (len(version), version)):  # 10 after 9
                with suppress(UsageError):  # another process has announced it first
                    await announce(self._bus, self._model, version, deadline_s=30.0)
