"""Limits on how far the policy may advance during a rollout.

The newest version of a model, and those before it, are stored with its newest weights (stream WEIGHTS). A version that
is not among them is older than all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gymq.bus import Bus, BusError, Msg, streams
from gymq.bus.jetstream import Stored
from gymq.failures import RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import BadMessage, FailureClass, Stage, Weights, decoder

_decode = decoder(Weights)


class Stale(RolloutError):
    """The rollout was started by a policy that is too old by now."""

    def __init__(self, behind: int, limit: int, version: str, newest: str) -> None:
        text = f"begun by the policy {version!r}, {behind} behind {newest!r}; at most {limit} updates are allowed"
        super().__init__(FailureClass.STALE, text, stage=Stage.MODEL)


class _Versions:
    """The versions of one model."""

    def __init__(self) -> None:
        self.newest: str | None = None  # None: its weights are what they were at the start
        self._updates: dict[str, int] = {}  # how many came after a version
        self._before_all = 0
        self._sequence = 0

    def learn(self, stored: Stored | None) -> None:
        """Take in the newest weights as they are stored; None: there are none, or none any more."""
        if stored is None:
            self.newest, self._sequence = None, 0
            return
        try:
            weights: Weights = _decode(stored.data)
        except BadMessage:
            return
        if stored.sequence <= self._sequence:
            return
        versions = [*weights.before, weights.policy_version]
        self.newest, self._sequence, self._before_all = weights.policy_version, stored.sequence, len(versions)
        self._updates = {version: len(versions) - 1 - position for position, version in enumerate(versions)}

    def behind(self, version: str) -> int:
        return self._updates.get(version, self._before_all)


class StalenessLimit:
    """The staleness limit of one rollout."""

    def __init__(self, versions: _Versions, limit: int) -> None:
        self._versions = versions
        self._limit = limit

    def check(self, policy_versions: Sequence[str]) -> None:
        """Check the versions that answered so far, the first one first.

        Raises:
            Stale: the first of them is too many updates behind the newest.
        """
        newest = self._versions.newest
        if newest is None or not policy_versions:
            return
        behind = self._versions.behind(policy_versions[0])
        if behind > self._limit:
            raise Stale(behind, self._limit, policy_versions[0], newest)


class Staleness:
    """Knows the versions of the models that limits were asked for."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._models: dict[str, _Versions] = {}
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def limit(self, model: str, max_staleness: int) -> StalenessLimit:
        """Return the limit for a rollout of this model.

        Raises:
            BusError: the newest version cannot be read.
        """
        async with self._starting:
            if model not in self._models:
                await self._follow(model)
        await self._read(model, self._models[model])
        return StalenessLimit(self._models[model], max_staleness)

    async def _follow(self, model: str) -> None:
        versions = _Versions()

        async def on_push(_message: Msg) -> None:
            await self._read_with_retries(model, versions)

        subscription = await self._bus.subscribe(subjects.pushed(model), on_push)
        try:
            await self._bus.flush()
        except BusError:
            await self._bus.unsubscribe(subscription)
            raise
        if not self._models:
            self._bus.on_reconnect(self._read_again)
        self._models[model] = versions

    def _read_again(self) -> None:
        # What was pushed while this process was away is not heard any more.
        self._reading = asyncio.create_task(self._read_all())

    async def _read_all(self) -> None:
        for model, versions in list(self._models.items()):
            await self._read_with_retries(model, versions)

    async def _read_with_retries(self, model: str, versions: _Versions) -> None:
        with suppress(BusError):  # the connection is closed for good
            await self._bus.retry_read(lambda: self._read(model, versions))

    async def _read(self, model: str, versions: _Versions) -> None:
        versions.learn(await self._js.last(streams.WEIGHTS, subjects.weights(model)))
