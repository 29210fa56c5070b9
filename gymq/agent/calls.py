"""The calls that the loop of a rollout makes: timed, recorded, resent, and ended with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from gymq.agent import offered_tools
from gymq.agent.options import AgentOptions
from gymq.errors import BusError
from gymq.failures import CancelReason, RolloutError
from gymq.protocol.messages import Call, FailureClass, Message, ResourcesRequest, Seeded, Stage, Timing

log = logging.getLogger("gymq.agent")


class Caller(Protocol):
    """Sends one request and returns the reply."""

    async def call(self, subject: str, request: Call) -> Message:
        """Return the reply to a request.

        Raises:
            RolloutError: there is no reply.
        """
        ...

    async def send(self, subject: str, request: Call) -> None:
        """Send a request without waiting for a reply."""
        ...


class Recorder(Protocol):
    """Records the effects of a rollout, so that another process can replay them."""

    session: str | None  # where the rollout's session was moved to

    async def effect(self, key: str, may_wait: bool, perform: Callable[[], Awaitable[Message]]) -> Message: ...

    async def moved(self, session: str) -> None: ...

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None: ...

    async def confirm(self) -> None: ...


class RolloutCalls:
    """The part of a rollout that its session needs: task, deadline and calls."""

    def __init__(
        self,
        caller: Caller,
        *,
        rollout_id: str,
        row: bytes,
        params: dict[str, Any],
        options: AgentOptions,
        deadline: float,
        num_lost: int = 0,
        stateless: dict[str, Seeded] | None = None,
    ) -> None:
        """Prepare the calls of one rollout.

        Args:
            row: JSON text of the task's row.
            params: its `responses_create_params`, checked.
            deadline: on the event loop's clock, in seconds.
            num_lost: sessions of earlier attempts that were lost during a call.
            stateless: what stateless resources replied to a seed, shared by rollouts: they need not be seeded again.
        """
        self.id = rollout_id
        self.row = row
        self.params = params
        self.options = options
        self.stateless = {} if stateless is None else stateless
        self.recorder: Recorder | None = None
        self.timings: list[Timing] = []
        self.num_sessions = 0
        self._num_lost = num_lost
        self._caller = caller
        self._deadline = deadline
        self._began = asyncio.get_running_loop().time()
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def time_left(self) -> float:
        """Return the seconds until the rollout's deadline.

        Raises:
            RolloutError: it has passed.
        """
        left = self.until_deadline()
        if left <= 0:
            raise RolloutError(FailureClass.DEADLINE_EXCEEDED, "the deadline of the rollout has passed")
        return left

    def until_deadline(self) -> float:
        """Return the seconds until the rollout's deadline; negative when it has passed."""
        return self._deadline - asyncio.get_running_loop().time()

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """Replace the tools of the row by these; they are stored with the row."""
        self.params = {**self.params, "tools": tools}
        self.row = offered_tools.row_with(self.row, tools)

    async def call(
        self, subject: str, request: Call, stage: Stage, *, key: str | None = None, may_wait: bool = False
    ) -> Message:
        """Send a request; all effects of an agent pass through here.

        Args:
            key: identifies the call in the journal, unique in the rollout; None: the call is not recorded.
            may_wait: whether its reply may be recorded with the next entry: a repeated call is answered from memory, or
                does no harm.
        """
        if self._is_over:
            raise RolloutError(FailureClass.AGENT_FAILED, "this attempt at the rollout has ended", stage=Stage.AGENT)
        loop = asyncio.get_running_loop()
        started = loop.time()
        caller = asyncio.current_task()
        assert caller is not None
        self._in_flight.add(caller)
        try:
            if self.recorder is None or key is None:
                return await self._call(subject, request)
            return await self.recorder.effect(key, may_wait, lambda: self._call(subject, request))
        except RolloutError as error:
            raise error.at(stage) from None
        finally:
            self._in_flight.discard(caller)
            if not self._is_over and len(self.timings) < 4096:
                self.timings.append(Timing(stage, started - self._began, loop.time() - started))

    async def _call(self, subject: str, request: Call) -> Message:
        """Send a request, and resend it while no worker serves its subject, until the request times out."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + request.timeout_s
        if self._num_lost and isinstance(request, ResourcesRequest):
            request = msgspec.structs.replace(request, num_lost=self._num_lost)
        failed = 0
        while True:
            try:
                return await self._caller.call(subject, request)
            except RolloutError as error:
                failed += 1
                num_lost = error.num_lost
                left_s = give_up - loop.time()
                retry = error.retries.effect
                pause_s = None if retry is None else retry.pause_s(failed, left_s=left_s)
                if pause_s is None:
                    raise
                log.info("waiting: %s", error.message)
            await asyncio.sleep(pause_s)
            request = msgspec.structs.replace(request, timeout_s=left_s - pause_s, num_lost=num_lost)

    async def send(self, subject: str, request: Call) -> None:
        await self._caller.send(subject, request)

    def end(self, *, handed_over: bool = False) -> None:
        """Cancel the calls that the loop left in flight, and refuse further ones.

        Args:
            handed_over: whether another process continues the rollout, and needs what its session works on.
        """
        self._is_over = True
        for task in self._in_flight - {asyncio.current_task()}:
            task.cancel(*((CancelReason.HANDED_OVER,) if handed_over else ()))


def handed_over(error: BaseException | None) -> bool:
    """Return whether another process continues the rollout that this error ends here."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(handed_over, error.exceptions))
    return isinstance(error, BusError) or (error is not None and CancelReason.HANDED_OVER in error.args)
