"""The policy that a program trains: which versions it has, and new weights for it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gymq.bus import Bus
from gymq.bus.discovery import is_running
from gymq.bus.queue.client import SERVER_PATIENCE_S
from gymq.bus.weights.holding import held, until_finished
from gymq.bus.weights.known import told_versions, why_unknown
from gymq.bus.weights.pushing import Pushed, announce, newest, push
from gymq.bus.weights.staleness import updates_since
from gymq.defaults import CONFIRM_S, InFlight, WeightsMode
from gymq.errors import UsageError
from gymq.processes.loop_thread import LoopThread
from gymq.protocol import subjects
from gymq.trainer.told_versions import ToldVersions

P = ParamSpec("P")
T = TypeVar("T")
PolicyT = TypeVar("PolicyT", bound="TrainedPolicy")
UpdateHook = Callable[[str], Awaitable[None]]


def in_thread(
    method: Callable[Concatenate[PolicyT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PolicyT, P], Coroutine[Any, Any, T]]:
    """Let a method run where the connection lives."""

    @functools.wraps(method)
    async def called(self: PolicyT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._there(method(self, *args, **kwargs))

    return called


class TrainedPolicy:
    """The policy of a training, on a connection that may live in a thread of its own.

    Attributes:
        model: the instance that is trained.
        policy_version: the one that was pushed last by this object; None: there is none.
        thread: where the connection lives; None: on the caller's event loop.
    """

    def __init__(self, bus: Bus, model: str, thread: LoopThread | None) -> None:
        try:
            subjects.instance(model, "model")
        except subjects.BadToken as error:
            raise UsageError(str(error)) from None
        self.model = model
        self.policy_version: str | None = None
        self.thread = thread
        self._bus = bus
        self._checking = asyncio.Lock()
        self._has_versions = False
        self._told = ToldVersions(bus, model)
        self._replicas: set[str] = set()  # that the last push found
        self._before_update: list[UpdateHook] = []
        self._after_update: list[UpdateHook] = []

    def before_update(self, hook: UpdateHook) -> None:
        """Await `hook(policy_version)` before new weights are pushed; if it raises they are not."""
        self._before_update.append(hook)

    def after_update(self, hook: UpdateHook) -> None:
        """Await `hook(policy_version)` when replicas have loaded new weights."""
        self._after_update.append(hook)

    async def update_weights(
        self,
        policy_version: str,
        *,
        weights: bytes | Path | None = None,
        path: str | Path | None = None,
        mode: WeightsMode = "keep",
        in_flight: InFlight = "continue",
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Give all replicas of the model new weights; the arguments are those of `gymq.bus.weights.pushing.push`.

        Returns:
            Which replicas have loaded them. One that has not yet keeps answering under the version that it has.

        Raises:
            UsageError: no replica has loaded them.
            BusError: NATS was away; it is unknown whether they were pushed.
        """
        options: dict[str, Any] = {"weights": weights, "path": path, "mode": mode, "in_flight": in_flight}
        for hook in self._before_update:
            await hook(policy_version)
        pushed = await self._push(push, policy_version, deadline_s, options)
        for hook in self._after_update:
            await hook(policy_version)
        return pushed

    async def announce(
        self,
        policy_version: str,
        *,
        engines: Sequence[str] = (),
        in_flight: InFlight = "continue",
        load: Callable[[], Awaitable[None]] | None = None,
        deadline_s: float = CONFIRM_S,
    ) -> Pushed:
        """Tell that the model's engines have new weights, which this program gives them itself.

        From then on calls of the model carry the version. Announce while the engines are paused: tokens of a reply
        whose call is in flight meanwhile have no known version.

        Args:
            policy_version: recorded in every rollout that the engines answer.
            engines: URLs of those that answer from now on; empty: the same as before.
            in_flight: what becomes of rollouts that run, as in `update_weights`; `finish` needs `load`.
            load: gives the engines the weights; awaited before, and with `finish` once the rollouts have ended.
            deadline_s: seconds for the model's workers to answer with the version, and for rollouts to finish.

        Returns:
            Which workers answer with it.

        Raises:
            UsageError: none does.
            BusError: NATS was away; it is unknown whether it was announced.
        """
        if in_flight == "finish" and load is None:
            raise UsageError("finish: the engines have the weights already; `load` gives them when rollouts have ended")
        for hook in self._before_update:
            await hook(policy_version)
        async with self._held(in_flight, deadline_s):
            if load is not None:
                await load()
            pushed = await self._push(
                announce, policy_version, deadline_s, {"in_flight": in_flight, "engines": engines}
            )
        for hook in self._after_update:
            await hook(policy_version)
        return pushed

    @in_thread
    async def needs_announcing(self) -> bool:
        """Return whether the versions of the model are known only if the program announces them."""
        return await told_versions(self._bus, self.model) == []

    @asynccontextmanager
    async def _held(self, in_flight: InFlight, deadline_s: float) -> AsyncIterator[None]:
        """Have no rollout begin until the block ends, and with `finish` none run in it."""
        async with AsyncExitStack() as stack:
            if in_flight != "continue":
                hold = held(self._bus, self.model)
                await self._there(hold.__aenter__())
                stack.push_async_callback(lambda: self._there(hold.__aexit__(None, None, None)))
            if in_flight == "finish":
                await self._there(until_finished(self._bus, self.model, deadline_s))
            yield

    @in_thread
    async def _push(
        self, give: Callable[..., Awaitable[Pushed]], policy_version: str, deadline_s: float, options: dict[str, Any]
    ) -> Pushed:
        self._told.stop()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + deadline_s
        no_replica = f"none answered within {deadline_s:g} s"
        while True:
            pushed = await give(
                self._bus, self.model, policy_version, deadline_s=deadline_s, known=self._replicas, **options
            )
            self._replicas = {*pushed.confirmed, *pushed.missing}
            if pushed.confirmed or pushed.missing or loop.time() >= give_up:
                break
            if not await is_running(self._bus, self.model, "models"):
                no_replica = "none is running; one that starts loads them"
                break
            # The replicas were too busy to answer in time. A push that is repeated counts once.
        if not pushed.confirmed:
            reasons = "; ".join(f"{worker}: {reason}" for worker, reason in pushed.missing.items())
            raise UsageError(f"no replica of {self.model} answers with {policy_version!r}: {reasons or no_replica}")
        self.policy_version = policy_version
        return pushed

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await (work if self.thread is None else self.thread.call(work))

    async def check_versions(self) -> None:
        """Check that the versions of the policy are known: a limit on staleness would limit nothing without them.

        Raises:
            UsageError: they are not.
            BusError: the server does not answer.
        """
        async with self._checking:
            if self._has_versions:
                return
            await self._told.announce()
            if reason := await why_unknown(self._bus, self.model):
                raise UsageError(reason)
            self._has_versions = True

    async def updates_since(self) -> Callable[[str], int]:
        """Return a function that says how many updates of the policy came after a version.

        Raises:
            BusError: the newest version cannot be read.
        """
        await self._told.announce()
        weights = await self.retried(lambda: newest(self._bus, self.model))
        return (lambda version: 0) if weights is None else updates_since(weights)

    async def retried(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return what a reader returns, also if the server is away for a while.

        Raises:
            BusError: it was away for too long.
        """
        hint = "request the same task indices again to resume"
        return await self._bus.retry_read(read, hint=hint, patience_s=SERVER_PATIENCE_S)
