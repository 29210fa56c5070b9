"""The connection to NATS. Only this module knows the client library.

Everything here is bounded: connects, requests and publishes end at a deadline, buffers have a size, and a connection
that looks alive but hears nothing is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import re
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import nats.errors
from nats.aio.msg import Msg as Msg
from nats.aio.subscription import Subscription as Subscription

from gymq.bus import credentials, library, tls, unguessable
from gymq.bus.client import MendedClient, TlsClient, stop
from gymq.bus.errors import Denied, NoAnswer, NoResponders, NoServer, TooLarge
from gymq.bus.large_bodies import LargeBodies
from gymq.errors import BusError
from gymq.processes.background import is_set_within, was_suspended
from gymq.processes.failing import FailureLogged, OnFailureAwait
from gymq.protocol import subjects
from gymq.redaction import redact

log = logging.getLogger("gymq.bus")

HEADER_ROOM_BYTES = 4096  # headers count towards the server's limit; one byte over closes the connection for good
LOG_AGAIN_S = 60.0  # while the server is away; it is tried four times a second
SETTLING_S = 3.0  # after a reconnect; others may take longer to come back
OUTAGE_BUFFER_BYTES = 64 << 20
FLUSH_TIMEOUT_S = 10.0

_SAID = "Error nats: "  # how the client library's errors with a reason of the server begin
_REFUSED = re.compile("Authorization Violation|CERTIFICATE_VERIFY_FAILED|does not speak TLS")
_LOGIN = (
    "; the user or the password is missing or wrong: the URL has them as USER:PASSWORD@ before the host; "
    "for a server of `gymq up` the user is gymq, and the password is in the file .gymq/jetstream/password of its folder"
)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "(.*?)"')  # the client library lowers it


class Connection:
    """One connection, shared by everything in a process."""

    def __init__(self, client: MendedClient, role: str) -> None:
        self._nc = client
        self.role = role
        self.box = secrets.token_hex(10)
        self.max_body_bytes = 0  # what the server takes, once it is connected
        self.reconnects = 0
        self._reconnected_at = -math.inf
        self._names = unguessable.texts(12)
        self._expected: dict[str, Callable[[Msg], None]] = {}
        self._requests: dict[str, tuple[str, Callable[[BusError], None]]] = {}  # by reply
        self._problems: list[str] = []  # of the tries to connect
        self._logged: dict[str, float] = {}  # when each problem of the tries to reconnect was logged last
        self._absent_at = math.inf  # from when on a server that is not there is not waited for
        self._watchdog: asyncio.Task[None] | None = None  # from when it is connected
        self._back = asyncio.Event()  # set with the next reconnect
        self._on_reconnect: list[Callable[[], object]] = []
        self.storing = asyncio.Semaphore(256)  # More would only wait in line at the server, and be repeated.
        self.large_bodies = LargeBodies()
        self.unstored: Counter[str] = Counter()  # messages that the server does not take for now, by the reason
        self.lost = asyncio.Event()  # set when the connection is closed for good

    @classmethod
    async def connect(
        cls, url: str, *, role: str, name: str, timeout_s: float = 10.0, is_starting: bool = True
    ) -> Self:
        """Connect to one server or, comma-separated, to any of several.

        The user is that of the URL, else that of the role (see `gymq.bus.credentials`); TLS is spoken as
        `gymq.bus.tls` says.

        Args:
            role: first part of the inbox, which determines the permissions: agent, model, resources, client, …
            name: shown by the server's monitoring.
            is_starting: a server that is not there may come within `timeout_s`; otherwise it is missed after a second.

        Raises:
            NoServer: no server is there, and `is_starting` is false.
            BusError: no server answers within `timeout_s`, the server refuses the credentials, or does not speak TLS.
        """
        bus = cls(TlsClient() if tls.is_demanded(url) else MendedClient(), role)
        if not is_starting:
            bus._absent_at = time.monotonic() + 1.0
        await bus._connect(url, name, timeout_s)
        replies = subjects.reply(role, "*", bus.box, "*")
        async with OnFailureAwait(bus._nc.give_up):
            # What is not cut into parts, such as lists of subjects, must fit into a message.
            if bus._nc.max_payload < 64 << 10:
                text = f"takes messages of up to {bus._nc.max_payload:,} bytes, which is too little"
                raise BusError(f"NATS at {redact(url)} {text}: set max_payload in its configuration to 8MB")
            await bus.listen(replies, bus._on_reply)
            await bus.flush()
            if any(_DENIED.search(problem) for problem in bus._problems):
                raise BusError(f"NATS at {redact(url)} refuses {role!r}: the user of this password has another role")
        bus._watchdog = asyncio.create_task(bus._nc.watch())
        return bus

    async def _connect(self, url: str, name: str, timeout_s: float) -> None:
        library.prepare_for(url)
        servers, login = credentials.login(credentials.url_of_role(url, self.role))
        options: dict[str, Any] = login if (context := tls.context(url)) is None else {**login, "tls": context}
        connecting = asyncio.create_task(
            self._nc.connect(
                servers,
                **options,
                name=name,
                error_cb=self._on_error,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._end,
                inbox_prefix=f"{subjects.INBOX_PREFIX}{self.role}".encode(),
                connect_timeout=2,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,  # type: ignore[arg-type]
                ping_interval=10,
                max_outstanding_pings=2,
                pending_size=OUTAGE_BUFFER_BYTES,
                flush_timeout=FLUSH_TIMEOUT_S,
                drain_timeout=30,
            )
        )
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(connecting)
        except BusError as error:  # out of `_on_error`
            raise type(error)(f"cannot connect to NATS at {redact(url)}: {error}") from None
        except nats.errors.Error as error:
            raise BusError(f"cannot connect to NATS at {redact(url)}: {redact(str(error))}") from None
        except (TimeoutError, OSError, ValueError) as error:
            said = [problem for problem in self._problems if problem.startswith(_SAID)]  # before it cut the connection
            reason = redact(str(error)) or (said or self._problems or [f"no answer within {timeout_s:g} s"])[-1]
            raise BusError(f"cannot connect to NATS at {redact(url)}: {reason}") from None
        finally:
            await stop(connecting)
            if not self._nc.is_connected:
                self._nc.abandon()
        self._read_limit()

    def _read_limit(self) -> None:
        self.max_body_bytes = self._nc.max_payload - HEADER_ROOM_BYTES

    async def _on_error(self, error: Exception) -> None:
        absence = _absence(error)
        text = absence or redact(f"{type(error).__name__} {error}")
        if self._watchdog is None:
            self._problems.append(text)
            refusals = [problem for problem in self._problems if _REFUSED.search(problem)]
            num_servers = len(self._nc.servers)
            if not self._nc.is_connected and len(refusals) >= num_servers:
                hint = _LOGIN if "Authorization Violation" in refusals[-1] else ""
                raise BusError(refusals[-1] + hint)  # out of `connect`, which would try for ever
            if absence and len(self._problems) >= num_servers and time.monotonic() > self._absent_at:
                raise NoServer(absence)
        elif self.is_connected:
            log.warning("nats: %s", text)
            self._on_denied(text)
        elif time.monotonic() - self._logged.get(text, -math.inf) >= LOG_AGAIN_S:
            self._logged[text] = time.monotonic()
            log.warning("nats: %s", text)

    async def _on_reconnected(self) -> None:
        if self._watchdog is None:
            return
        self.reconnects += 1
        self._back.set()
        self._back = asyncio.Event()
        self._reconnected_at = time.monotonic()
        self._logged.clear()
        self._read_limit()
        log.warning("nats: reconnected")
        for callback in list(self._on_reconnect):
            with FailureLogged(log, "a callback after the reconnect failed"):
                callback()

    async def _end(self) -> None:
        """Fail the requests that wait: nothing arrives any more."""
        self.lost.set()
        self._back.set()
        for subject, fail in list(self._requests.values()):
            fail(BusError(f"no answer on {subject}: the connection is closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is buffered, then disconnect. `async with await Bus.connect(...) as bus` does it at its end."""
        if self._watchdog:
            self._watchdog.cancel()
        try:
            if self._nc.is_connected:
                await self.flush()
        except BusError:
            self._nc.abandon()
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await self._nc.close()
        await self._end()

    @property
    def is_connected(self) -> bool:
        return bool(self._nc.is_connected)

    def on_reconnect(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` after each reconnect, until the function that is returned is called."""
        self._on_reconnect.append(callback)
        return lambda: self._on_reconnect.remove(callback)

    @property
    def is_stable(self) -> bool:
        """Whether the connection is up, and for so long that other clients should have reconnected as well."""
        return self.is_connected and time.monotonic() - self._reconnected_at > SETTLING_S

    async def until_connected(self, timeout_s: float) -> bool:
        """Wait while the server is away; whether it is there now."""
        if not self.is_connected and not self._nc.is_closed:
            await is_set_within(self._back, timeout_s)
        return self.is_connected

    async def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until the server has handled everything sent so far, subscriptions included.

        Raises:
            BusError: it did not answer in time.
        """
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S + timeout_s):  # it waits in line behind those that publish
                await self._nc.flush(timeout=timeout_s)  # type: ignore[arg-type]
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise BusError(f"the server does not answer: {error}") from None

    async def publish(
        self, subject: str, body: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send without waiting for anything; while disconnected it is buffered up to a limit.

        Raises:
            TooLarge: the body exceeds the server's limit.
            BusError: the buffer is full or the connection is closed for good.
        """
        if len(body) > self.max_body_bytes:
            raise TooLarge(f"a body of {len(body)} bytes exceeds the server's limit of {self.max_body_bytes}")
        try:
            await self._nc.publish(subject, body, reply=reply, headers=headers)
        except nats.errors.Error as error:
            raise BusError(f"cannot publish to {subject}: {error}") from None

    async def subscribe(self, subject: str, handler: Callable[[Msg], Any], *, group: str = "") -> Subscription:
        """Pass every message on `subject` to `handler`, in order.

        With a group, each message goes to only one of its subscribers.
        """
        return await self._nc.subscribe(subject, queue=group, cb=handler, pending_bytes_limit=512 << 20)

    async def listen(self, subject: str, on_message: Callable[[Msg], None], *, group: str = "") -> Subscription:
        """Call `on_message` for every message on `subject` as soon as it is read; it must not take long.

        This costs a fraction of `subscribe`, which has a queue and a task for each subscription.
        """
        return await self._nc.listen(subject, on_message, group=group)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Take nothing more; what has arrived so far is handled before this returns."""
        try:
            await subscription.drain()  # type: ignore[no-untyped-call]
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.warning("nats: a subscription did not end cleanly: %s", redact(f"{type(error).__name__} {error}"))
        finally:
            await self._nc.forget(subscription)

    def expect(
        self,
        on_reply: Callable[[Msg], None],
        answered_by: str,
        *,
        subject: str = "",
        on_failed: Callable[[BusError], None] | None = None,
    ) -> str:
        """Return a fresh reply subject; `on_reply` gets what arrives there until `forget`.

        Args:
            answered_by: the role that may answer, see `subjects.answered_by`.
            subject: where the request is published.
            on_failed: called if no reply can come: the server does not let this user publish there, or the connection
                is closed for good.
        """
        # Random: a worker that knows the reply subject of a request can answer it.
        reply = subjects.reply(self.role, answered_by, self.box, next(self._names))
        self._expected[reply] = on_reply
        if on_failed is not None:
            self._requests[reply] = subject, on_failed
        return reply

    def forget(self, reply: str) -> None:
        self._expected.pop(reply, None)
        self._requests.pop(reply, None)

    def _on_reply(self, message: Msg) -> None:
        on_reply = self._expected.get(message.subject) or self._expected.get("late")
        if on_reply is not None:
            on_reply(message)

    def on_late_reply(self, on_reply: Callable[[Msg], None]) -> None:
        """Set the handler for replies that arrive after their requester stopped waiting."""
        self._expected["late"] = on_reply

    async def request(
        self,
        subject: str,
        body: bytes,
        *,
        timeout_s: float,
        headers: dict[str, str] | None = None,
        answered_by: str | None = None,
    ) -> Msg:
        """Send one request and return its reply.

        Args:
            answered_by: the role whose reply counts; None: the one that serves the subject.

        Raises:
            NoResponders, NoAnswer, Denied, BusError
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        timer: asyncio.TimerHandle

        def on_reply(message: Msg) -> None:
            if not answer.done():
                answer.set_result(message)

        def fail(error: BusError) -> None:
            if not answer.done():
                answer.set_exception(error)

        def give_up() -> None:
            fail(NoAnswer(f"no answer on {subject} within {timeout_s:g} s"))

        def too_late() -> None:
            nonlocal timer
            if was_suspended(timer.when()):
                timer = loop.call_later(timeout_s, give_up)
            else:
                give_up()

        reply = self.expect(on_reply, answered_by or subjects.answered_by(subject), subject=subject, on_failed=fail)
        # A timer is half the cost of asyncio.timeout, and this runs several times a rollout.
        timer = loop.call_later(timeout_s, too_late)
        try:
            await self.publish(subject, body, reply=reply, headers=headers)
            message = await answer
        finally:
            timer.cancel()
            self.forget(reply)
        if is_no_responders(message):
            raise NoResponders(f"no worker serves {subject}")
        return message

    def _on_denied(self, error: str) -> None:
        """End the requests that an error of the server is about; it answers those that it denies in no other way."""
        denied = _DENIED.search(error)
        if denied is None or denied[1] != "publish":
            return
        for subject, fail in list(self._requests.values()):
            if subject.lower() == denied[2]:
                fail(Denied(f"the NATS server does not let this user publish to {subject}"))


def _absence(error: Exception) -> str:
    """Return why no server is there, if the error says so."""
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}"
    return "connection refused" if f"[Errno {errno.ECONNREFUSED}]" in str(error) else ""


def is_no_responders(message: Msg) -> bool:
    return not message.data and (message.headers or {}).get("Status") == "503"
