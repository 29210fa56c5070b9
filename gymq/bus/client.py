"""The client library, nats-py, where it is mended or made cheaper; nothing else here depends on how it works inside.

A message that is sent or read goes through few coroutines and no queue. Most of what a small message cost before was
that: it is several times as much as decoding it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import nats.aio.client
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import Parser

from gymq.processes.background import was_suspended
from gymq.redaction import redact

log = logging.getLogger("gymq.bus")

WATCHDOG_S = 5  # between looks whether the connection receives anything, and for the answer
CLOSE_S = 5.0  # in which the server can read what was written before its connection is replaced

# With the library's 32 kB, reading stops and starts again within a large message.
nats.aio.client.DEFAULT_BUFFER_SIZE = 256 << 10


async def stop(connecting: asyncio.Task[Any]) -> None:
    """Cancel a task that tries to connect, until it has ended.

    Up to Python 3.11 `wait_for`, of which the client library is full, can swallow a cancellation.
    """
    while not connecting.done():
        connecting.cancel()
        await asyncio.sleep(0.01)


class ReadListener:
    """A subscription's function that is called for each message where it is read, before the next one is."""

    def __init__(self, on_message: Callable[[Msg], None]) -> None:
        self.on_message = on_message

    async def func(self, message: Msg) -> None:
        """Take a message from the library's queue; it looks for this name to see whether it may await `__call__`."""
        self.on_message(message)

    __call__ = func


class _Parser(Parser):
    """Reads messages by itself, and leaves other commands of the server to the library's parser, one at a time.

    A subject may hold what regular expressions take for white space, a form feed for one; the server separates the
    fields of a command by single spaces.
    """

    nc: MendedClient

    def reset(self) -> None:
        super().reset()
        self._rest = bytearray()  # what has arrived of the next command
        self._wanted = 0  # its length with its body, once that is known
        self._connection = object()  # that the bytes are of

    async def parse(self, data: bytes = b"") -> None:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data, self._rest = bytes(self._rest), bytearray()
        connection = self._connection
        self._wanted = position = 0
        while (end := data.find(b"\r\n", position)) >= 0:
            start = end + 2
            kind, *fields = data[position:end].split(b" ")
            if kind not in (b"MSG", b"HMSG"):
                await super().parse(data[position:start])
                if connection is not self._connection:
                    return  # it was given up
                position = start
                continue
            try:
                num_bytes = int(fields.pop())
                header_bytes = int(fields.pop()) if kind == b"HMSG" else 0
                subject, sid, *reply = fields
                number = int(sid)
            except (IndexError, ValueError):
                raise nats.errors.ProtocolError("nats: malformed message") from None
            stop = start + num_bytes
            if len(data) < stop + 2:
                self._wanted = stop + 2 - position
                break
            body = start + header_bytes
            message = (number, subject, reply[0] if reply else b"", data[body:stop], data[start:body])
            if not self.nc.take(*message):
                await self.nc._process_msg(*message)
                if connection is not self._connection:
                    return
            position = stop + 2
        self._rest += data[position:]


class MendedClient(Client):
    """nats-py, where a flush flushes, a close ends everything, and neither message nor error ends reconnecting."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = _Parser(self)

    async def listen(self, subject: str, on_message: Callable[[Msg], None], *, group: str = "") -> Subscription:
        """Subscribe; each message is given to `on_message` where it is read, which must not take long."""
        return await self.subscribe(subject, queue=group, cb=ReadListener(on_message))

    def take(self, sid: int, subject: bytes, reply: bytes, body: bytes, headers: bytes) -> bool:
        """Give a message to its listener; return False if its subscription has none."""
        subscription = self._subs.get(sid)
        if subscription is None or not isinstance(subscription._cb, ReadListener):
            return False
        message = self._build_message(sid, subject, reply, body, parse_headers(headers) if headers else None)
        if message is not None:
            try:
                subscription._cb.on_message(message)
            except Exception as error:
                log.warning("nats: %s", redact(f"a message is ignored: {type(error).__name__}: {error}"))
        return True

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg | None:
        try:
            return self.msg_class(self, subject.decode(), reply.decode(), data, headers, _sid=sid)
        except UnicodeDecodeError:
            log.warning("nats: a message on %r with the reply subject %r is ignored: not UTF-8", subject, reply)
            return None

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        return parse_headers(headers) if headers else None

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        # The library has the say where anything is unusual, and refuses what could be read as another command.
        fields = f"{subject}{reply}{''.join(headers)}{''.join(headers.values())}" if headers else subject + reply
        if not subject or not self.is_connected or self.is_draining_pubs or not _is_plain(fields):
            await super().publish(subject, payload, reply, headers)
            return
        if headers:
            block = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            block = f"NATS/1.0\r\n{block}\r\n"  # ASCII, so it has as many bytes as characters
            command = f"HPUB {subject} {reply} {len(block)} {len(block) + len(payload)}\r\n{block}".encode()
        else:
            command = f"PUB {subject} {reply} {len(payload)}\r\n".encode()
        # A small body is copied, so that it is sent in one piece with its command.
        if len(payload) <= (16 << 10):
            self._pending.append(b"%b%b\r\n" % (command, payload))
        else:
            self._pending += (command, payload, b"\r\n")
        self._pending_data_size += len(command) + len(payload) + 2
        if self._pending_data_size > self._max_pending_size:
            await self._flush_pending(force_flush=True)
        elif self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        task = asyncio.current_task()
        num_cancelled = task.cancelling() if task else 0
        try:
            flushed = await super()._flush_pending(force_flush)
        except (RuntimeError, OSError) as error:
            # The transport is closed and the client has not noticed it yet: its flusher has ended, so it writes here,
            # which uvloop refuses with a RuntimeError. What is pending is sent after the reconnect.
            log.info("nats: not sent before the reconnect: %s", error)
            flushed = asyncio.get_running_loop().create_future()
            flushed.set_result(None)
        if task and task.cancelling() > num_cancelled:
            raise asyncio.CancelledError  # which the library suppresses
        return flushed

    async def flush(self, timeout: int = 10) -> None:
        # Its PING is written past the commands that still wait to be sent. A flush would end before the server has
        # seen them, and a subscription that is drained would lose messages.
        await self._flush_pending(force_flush=True)
        try:
            await super().flush(timeout)
        except RuntimeError as error:  # of uvloop: the transport is closed, and the client has not noticed it yet
            raise nats.errors.Error(str(error)) from None

    async def _process_pong(self) -> None:
        # That of a flush that was cancelled or timed out has a future that is done, and to set it would end the loop
        # that reads: nothing arrives any more until the connection is replaced.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def watch(self) -> None:
        """Replace the connection whenever it receives nothing."""
        # nats-py can keep a connection whose read loop is dead; rtt() notices, is_connected and flush() do not.
        while not self.is_closed:
            await asyncio.sleep(WATCHDOG_S)
            if not self.is_connected:
                continue
            due = asyncio.get_running_loop().time() + WATCHDOG_S
            try:
                async with asyncio.timeout(WATCHDOG_S):  # to send its PING, it waits in line behind those that publish
                    await self.rtt(timeout=WATCHDOG_S)
            except Exception:
                if self.is_connected and not was_suspended(due):
                    log.warning("nats: the connection receives nothing, replacing it")
                    with contextlib.suppress(Exception):
                        await self.force_reconnect()

    async def forget(self, subscription: Subscription) -> None:
        """End a subscription; the library would renew one whose `drain` failed at the next reconnect."""
        if self._subs.pop(subscription._id, None) is not None:
            subscription._stop_processing()
            await self._send_unsubscribe(subscription._id)

    @property
    def _socket(self) -> asyncio.WriteTransport | None:
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)  # websockets have none
        return None if writer is None else writer.transport

    def abandon(self) -> None:
        """Close the socket, without waiting until the server has read what was written."""
        if self._socket is not None:
            self._socket.abort()
        elif self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def give_up(self) -> None:
        """Close the connection at once."""
        self.abandon()
        await self.close()

    async def _attempt_reconnect(self) -> None:
        # The library waits until the server has read what was written, which one that is gone never does.
        if self._socket is not None:
            asyncio.get_running_loop().call_later(CLOSE_S, self._socket.abort)
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
                break
            except Exception as error:
                log.warning("nats: %s", redact(f"trying again after {type(error).__name__}: {error}"))
                self._status = self.RECONNECTING
            await asyncio.sleep(self.options["reconnect_time_wait"])

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # What is still to be sent, after a last flush or without a server, would be written to a transport that may be
        # closed, and the error would leave the rest open and call no callback.
        self._pending, self._pending_data_size = [], 0
        await super()._close(status, do_cbs)

    async def close(self) -> None:
        if not self.is_connected:
            self.abandon()
        try:
            await super().close()
        except asyncio.CancelledError:
            # Reconnecting waits for the same transport to close, and when it is cancelled takes the future along.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        reconnecting = self._reconnection_task
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            await stop(reconnecting)


class TlsClient(MendedClient):
    """Client that sends nothing to a server without TLS.

    The client library would continue without encryption and send the password.
    """

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise nats.errors.Error("nats: the server does not speak TLS")
        return super()._connect_command()


def parse_headers(block: bytes) -> dict[str, str] | None:
    """Return the headers of a message, which any publisher may have made up; malformed ones are left out.

    `Status` and `Description` are those of the first line, which only the server writes. If a header occurs twice, the
    last one counts: the server adds its own after those of the publisher.
    """
    version, _, rest = block.decode(errors="replace").partition("\r\n")
    found: dict[str, str] = {}
    for line in rest.split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    found.pop("Status", None)
    found.pop("Description", None)
    _, _, inline = version.partition(" ")
    status, _, description = inline.partition(" ")
    if status:
        found["Status"] = status
        found["Description"] = description
    return found or None


def _is_plain(fields: str) -> bool:
    """Return whether fields, all of them in one text, can be parts of a command as they are."""
    return fields.isascii() and fields.isprintable() and " " not in fields
