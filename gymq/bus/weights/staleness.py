"""What new weights mean for rollouts in flight: how stale they may become, and whether they continue.

The newest version of a model, and those before it, are stored with its newest weights (stream WEIGHTS). A version that
is not among them is older than all of them. While an update waits for rollouts to finish, or makes them start over,
its pusher holds back the first calls of rollouts (`gymq.bus.weights.holding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from gymq.bus import Bus, BusError, Msg, streams
from gymq.bus.jetstream import Stored
from gymq.defaults import InFlight
from gymq.failures import RolloutError
from gymq.processes.background import RunningTasks, is_set_within
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage, FailureClass, Stage
from gymq.protocol.replica_messages import Hold, Weights

_decode = Decoder(Weights)
_decode_hold = Decoder(Hold)


def superseded(versions: Sequence[str], update: str, in_flight: InFlight) -> RolloutError:
    """Return the error of a rollout whose policy was replaced, by an update that does not let rollouts continue.

    Args:
        versions: those that answered so far.
        update: the version of the update.
    """
    begun = f"by the policy {versions[0]!r}" if versions else "before"
    how = "restart" if in_flight == "restart" else "finish under one version"
    return _stale(f"begun {begun}; with the update to {update!r} rollouts {how}")


def _stale(text: str) -> RolloutError:
    return RolloutError(FailureClass.STALE, text, stage=Stage.MODEL)


def updates_since(weights: Weights) -> Callable[[str], int]:
    """Return a function that says how many updates came after a version, up to these weights."""
    versions = [*weights.before, weights.policy_version]
    updates = {version: len(versions) - 1 - position for position, version in enumerate(versions)}
    return lambda version: updates.get(version, len(versions))


class _Versions:
    """The versions of one model."""

    def __init__(self, bus: Bus, model: str) -> None:
        self._bus = bus
        self._model = model
        self._reading = RunningTasks()
        self.newest: str | None = None  # None: its weights are what they were at the start
        self.restarted: str | None = None  # the newest version with `restart`
        self.finished: str | None = None  # the newest version with `finish`
        self.on_restart: set[Callable[[RolloutError], None]] = set()
        self.held_until = 0.0  # on the event loop's clock
        self.behind: Callable[[str], int] = lambda version: 0  # how many updates came after a version
        self._changed = asyncio.Event()
        self._sequence = 0
        self._pushed_at = 0.0  # the newest push that was read, Unix time

    async def follow(self) -> None:
        """Follow the updates of the model from now on."""

        async def on_push(message: Msg) -> None:
            await self._read_with_retries(int((message.headers or {}).get("Nats-Sequence", 1)))

        async def on_hold(message: Msg) -> None:
            try:
                hold: Hold = _decode_hold(message.data)
            except BadMessage:
                return
            self.held_until = asyncio.get_running_loop().time() + hold.for_s
            self._changed.set()
            if not hold.for_s:
                await self._read_with_retries()  # weights that were removed are not announced

        subscriptions = [
            await self._bus.subscribe(subjects.PUSHED.of(self._model), on_push),
            await self._bus.subscribe(subjects.HOLD.of(self._model), on_hold),
        ]
        try:
            await self._bus.flush()
        except BusError:
            for subscription in subscriptions:
                await self._bus.unsubscribe(subscription)
            raise
        # What was pushed while this process was away is not heard any more.
        self._bus.on_reconnect(lambda: self._reading.start(self._read_with_retries()))

    async def _read_with_retries(self, pushed: int = 0) -> None:
        with suppress(BusError):  # the connection is closed for good
            await self._bus.retry_read(lambda: self.read(pushed))

    async def read(self, pushed: int = 0) -> None:
        """Read the newest weights; `pushed` is the sequence of some that were stored."""
        subject = subjects.WEIGHTS.of(self._model)
        if pushed:
            self._learn(await self._bus.js.last_beyond(pushed - 1, streams.WEIGHTS, subject))
        else:
            self._learn(await self._bus.js.last(streams.WEIGHTS, subject))

    def _learn(self, stored: Stored | None) -> None:
        """Take in the newest weights as they are stored; None: there are none, or none any more."""
        if stored is None:
            self.newest = self.restarted = self.finished = None
            self._sequence = 0
            return
        try:
            weights: Weights = _decode(stored.data)
        except BadMessage:
            return
        if stored.sequence <= self._sequence:
            return
        known, self.newest, self._sequence = self.newest, weights.policy_version, stored.sequence
        self.behind = updates_since(weights)
        # Older weights are back after a push that was rolled back: rollouts have started over for them already.
        is_new, self._pushed_at = weights.at > self._pushed_at, max(weights.at, self._pushed_at)
        mark, self.restarted, self.finished = self.restarted, weights.restarted, weights.finished
        if self.restarted is None or not is_new:
            return
        # The record of a push with `restart` may never have been read here, if another push followed it. When the name
        # of one that was read is pushed again, the mark is another, but no newer than what was read since.
        is_missed = mark != self.restarted and (
            known in (None, self.newest) or self.behind(self.restarted) < self.behind(known or "")
        )
        if weights.in_flight == "restart" or is_missed:
            for interrupt in list(self.on_restart):
                interrupt(superseded((), self.restarted, "restart"))

    @property
    def is_held(self) -> bool:
        """Whether an update holds rollouts back that have not begun."""
        return self.held_until > asyncio.get_running_loop().time()

    async def until_free(self, patience_s: float) -> None:
        """Wait until no update holds rollouts back, for so many seconds at most."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + patience_s
        while (now := loop.time()) < min(self.held_until, give_up):
            self._changed.clear()
            await is_set_within(self._changed, min(self.held_until, give_up) - now)


class StalenessLimit:
    """What updates of the policy mean for one rollout."""

    def __init__(self, versions: _Versions, limit: int | None) -> None:
        self._versions = versions
        self._limit = limit

    def check(self, policy_versions: Sequence[str]) -> None:
        """Check the versions that answered so far, the first one first.

        Raises:
            RolloutError: STALE; the first of them is too many updates behind the newest, or an update came that does
                not let rollouts continue.
        """
        known = self._versions
        if known.newest is None or not policy_versions:
            return
        behind = [known.behind(version) for version in policy_versions]
        first, oldest = behind[0], max(behind)  # a later reply may be of a replica that refused an update
        if known.restarted is not None and oldest > known.behind(known.restarted):
            raise superseded(policy_versions, known.restarted, "restart")
        if known.finished is not None and oldest > known.behind(known.finished) >= min(behind):
            raise superseded(policy_versions, known.finished, "finish")
        if self._limit is not None and first > self._limit:
            begun = f"begun by the policy {policy_versions[0]!r}, {first} behind {known.newest!r}"
            raise _stale(f"{begun}; at most {self._limit} updates are allowed")

    async def until_free(self, patience_s: float) -> None:
        """Wait until no update holds rollouts back that have not begun, for so many seconds at most."""
        await self._versions.until_free(patience_s)

    @contextmanager
    def interrupting(self, interrupt: Callable[[RolloutError], None]) -> Iterator[None]:
        """Call `interrupt` when an update comes with which rollouts restart."""
        self._versions.on_restart.add(interrupt)
        try:
            yield
        finally:
            self._versions.on_restart.discard(interrupt)


class Staleness:
    """Knows the versions of the models of an agent."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._models: dict[str, _Versions] = {}
        self._starting = asyncio.Lock()

    async def limit(self, model: str, max_staleness: int | None) -> StalenessLimit:
        """Return the limit for a rollout of this model.

        Args:
            max_staleness: updates that may come after its first reply; None: any number.
        """
        await self.follow(model)
        if max_staleness is not None:
            await self._models[model].read()
        return StalenessLimit(self._models[model], max_staleness)

    async def follow(self, model: str) -> None:
        """Follow the updates of a model from now on."""
        if model in self._models and not self._starting.locked():
            return  # each rollout comes here
        async with self._starting:
            if model not in self._models:
                versions = _Versions(self._bus, model)
                await versions.follow()
                self._models[model] = versions
                await versions.read()

    def is_held(self, model: str) -> bool:
        """Return whether an update of a model holds rollouts back."""
        return model in self._models and self._models[model].is_held
