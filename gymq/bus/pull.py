"""Messages pulled from a durable consumer, each to be settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gymq.bus.connection import Connection, Msg, Subscription, is_no_responders
from gymq.errors import BusError
from gymq.protocol import subjects

_NOT_FOUND = "404"
_EXPIRED = "408"
_CONSUMER_DELETED = "Consumer Deleted"


class Delivery:
    """One message of a consumer, to be settled exactly once."""

    __slots__ = ("_bus", "_reply", "data", "num_delivered", "num_pending", "sequence", "subject")

    def __init__(self, bus: Connection, message: Msg) -> None:
        self._bus = bus
        self._reply = message.reply
        self.subject = message.subject
        self.data = message.data
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<stream sequence>.<…>.<time>.<pending>
        fields = message.reply.split(".")
        delivered = 4 if len(fields) == 9 else 6
        self.num_delivered = int(fields[delivered])
        self.sequence = int(fields[delivered + 1])
        self.num_pending = int(fields[delivered + 4])  # messages that the consumer had not delivered yet

    async def ack(self) -> None:
        """Acknowledge the message; if the acknowledgement is lost, the message is redelivered."""
        await self._answer(b"+ACK")

    async def nak(self, *, after_s: float = 0.0) -> None:
        """Negative-acknowledge the message, so that it is redelivered, at once or after so many seconds."""
        await self._answer(b'-NAK {"delay": %d}' % int(after_s * 1e9) if after_s else b"-NAK")

    async def in_progress(self) -> None:
        """Report that the message is still in flight, which postpones its redelivery."""
        await self._answer(b"+WPI")

    def void(self) -> None:
        """Settle it no more: its stream is gone, and the next one would take the answer as one to its own message."""
        self._reply = ""

    @property
    def is_void(self) -> bool:
        return not self._reply

    async def _answer(self, body: bytes) -> None:
        if self._reply:
            await self._bus.publish(self._reply, body)


class Pull:
    """Asks a durable consumer for messages and hands each to a callback as it arrives.

    Args:
        on_delivery: called on the event loop for each message; must not block.

    Attributes:
        on_end: called when a request ended with fewer messages than asked for.
        on_gone: called in place of it when there is no such consumer.
    """

    EXPIRES_S = 30.0
    ASK_AGAIN_S = 0.5  # after a request was refused; without a pause, one that always is would be asked in a loop

    def __init__(self, bus: Connection, stream: str, consumer: str, on_delivery: Callable[[Delivery], None]) -> None:
        self._bus = bus
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        # A token deeper than where the bus itself listens.
        self._inbox = subjects.reply(bus.role, subjects.SERVER, bus.box, f"pull.{consumer}")
        self._on_delivery = on_delivery
        self._outstanding = 0
        self._ends_at = 0.0  # the latest end of a request, on the monotonic clock
        self._subscription: Subscription | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.on_gone: Callable[[], None] = self._end_later

    @property
    def outstanding(self) -> int:
        """Number of messages that were requested and have not arrived yet."""
        # A server that restarts forgets waiting requests without a word.
        if self._outstanding and time.monotonic() > self._ends_at + 2.0:
            self._outstanding = 0
        return self._outstanding

    async def start(self) -> None:
        self._subscription = await self._bus.listen(self._inbox, self._on_message)

    async def ask(self, count: int, *, wait_s: float | None = None) -> None:
        """Ask for `count` more messages.

        Args:
            wait_s: seconds after which the request ends with what has arrived, `EXPIRES_S` by default; 0: it ends at
                once where there is no message.
        """
        if not self._bus.is_connected:
            # It would be kept and sent on reconnecting, in addition to what is asked for then.
            raise BusError("not connected")
        wait_s = self.EXPIRES_S if wait_s is None else wait_s
        limit = b'"expires": %d' % int(wait_s * 1e9) if wait_s else b'"no_wait": true'
        self._outstanding += count
        self._ends_at = max(self._ends_at, time.monotonic() + wait_s)
        await self._bus.publish(self._subject, b'{"batch": %d, %b}' % (count, limit), reply=self._inbox)

    def reset(self) -> None:
        """Forget outstanding requests, after a reconnect."""
        self._outstanding = 0
        self.on_end()

    async def stop(self) -> None:
        """Take no more; what has arrived so far was handed over."""
        if self._subscription is not None:
            await self._bus.unsubscribe(self._subscription)
            self._subscription = None

    def _end_later(self) -> None:
        asyncio.get_running_loop().call_later(self.ASK_AGAIN_S, lambda: self.on_end())

    def _on_message(self, message: Msg) -> None:
        if message.reply:  # what is delivered has one, to acknowledge it; a status has none
            self._outstanding = max(0, self._outstanding - 1)
            self._on_delivery(Delivery(self._bus, message))
            return
        headers = message.headers or {}
        status = headers.get("Status")
        if status == "100":
            return
        missing = headers.get("Nats-Pending-Messages")
        self._outstanding = max(0, self._outstanding - int(missing)) if missing else 0
        if status in (_EXPIRED, _NOT_FOUND):
            self.on_end()
        elif is_no_responders(message) or headers.get("Description") == _CONSUMER_DELETED:
            self.on_gone()
        else:
            self._end_later()
