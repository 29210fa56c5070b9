"""Streams on top of the connection: store, and read by subject or sequence."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from gymq.bus.connection import Connection, Msg, is_no_responders
from gymq.bus.errors import Denied, NoAnswer, NoResponders, TooLarge
from gymq.errors import BusError
from gymq.protocol import subjects
from gymq.protocol.decoding import UNDECODABLE


class Code(IntEnum):
    """JetStream's error codes that this code acts upon."""

    WRONG_LAST_SEQUENCE = 10071
    STREAM_FULL = 10077
    SERVER_FULL = 10023
    EXISTS_DIFFERENTLY = 10058
    CONSUMER_NOT_FOUND = 10014
    MESSAGE_NOT_FOUND = 10037
    STREAM_NOT_FOUND = 10059
    # Of servers that keep replicas: what was published before is with them, and may come to be stored.
    DUPLICATE_IN_PROCESS = 10158
    SUBJECT_IN_PROCESS = 10164


# Why a message is not stored yet.
DISK_FULL = "disk full: NATS stores no more messages"
NOT_STORED = "NATS does not confirm what it stores"
_MAKE_ROOM = "`gymq delete --run RUN` removes a run that is done; `max_file` of the server's configuration is its limit"

_CURED_BY_TIME: dict[int, str] = {
    Code.STREAM_FULL: DISK_FULL,
    Code.SERVER_FULL: DISK_FULL,
    Code.DUPLICATE_IN_PROCESS: NOT_STORED,
    Code.SUBJECT_IN_PROCESS: NOT_STORED,
}

BATCH_BYTES = 4 << 20  # of one request of a reader; the server ends a batch there


class JetStreamError(BusError):
    """JetStream refused a request."""

    def __init__(self, code: int, description: str) -> None:
        is_full = "no space left on device" in description
        super().__init__(f"the disk of NATS is full: {description}" if is_full else description)
        self.code = code


@dataclass(frozen=True)
class Stored:
    """One message of a stream."""

    subject: str
    sequence: int
    data: bytes
    stored_at: str = ""  # RFC 3339


class _ApiError(msgspec.Struct):
    err_code: int = 0
    description: str = "unknown error"


class PubAck(msgspec.Struct):
    """JetStream's answer to a publish."""

    seq: int = 0
    duplicate: bool = False
    error: _ApiError | None = None


class _Refused(msgspec.Struct):
    error: _ApiError | None = None


_END_OF_BATCH = "204"
_NOT_FOUND = "404"

_decode_ack = msgspec.json.Decoder(PubAck).decode
_decode_error = msgspec.json.Decoder(_Refused).decode


class JetStream:
    """JetStream requests over one connection; methods that read raise NoAnswer where a stream is not available.

    Attributes:
        seen: the streams that were there when `gymq.bus.streams.look` looked.
        missing: a sentence that names one of them which was deleted; empty: there is none.
    """

    def __init__(self, bus: Connection) -> None:
        self._bus = bus
        self.seen: set[str] = set()
        self.missing = ""

    async def api(self, subject: str, body: Any = None, *, timeout_s: float = 10.0) -> dict[str, Any]:
        """Send one request to JetStream's API (`$JS.API.` is prepended to the subject).

        Raises:
            JetStreamError, NoAnswer
        """
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            message = await self._bus.request(f"$JS.API.{subject}", payload, timeout_s=timeout_s)
        except NoResponders:
            raise NoAnswer("JetStream is not available on this NATS server: is it started with --jetstream?") from None
        try:
            error = _decode_error(message.data).error
            answer: dict[str, Any] = msgspec.json.decode(message.data)
        except UNDECODABLE as problem:
            raise BusError(f"not JetStream's answer on {subject}: {problem}") from None
        if error is not None and error.err_code == Code.STREAM_NOT_FOUND:
            raise JetStreamError(Code.STREAM_NOT_FOUND, f"the NATS server has no stream {subject.split('.')[2]}")
        if error is not None:
            raise JetStreamError(error.err_code, error.description)
        return answer

    def check_streams(self) -> None:
        """Raise a `BusError` if a stream was deleted, as far as this process has noticed."""
        if self.missing:
            raise BusError(self.missing)

    async def store(
        self, subject: str, body: bytes, *, headers: dict[str, str] | None = None, timeout_s: float = 5.0
    ) -> PubAck:
        """Publish into a stream and wait until the server has it.

        Raises:
            JetStreamError: refused; `code` says why.
            NoAnswer: not acknowledged in time; repeat it with a message id or an expected sequence.
        """
        try:
            message = await self._bus.request(subject, body, timeout_s=timeout_s, headers=headers)
        except NoResponders:
            raise NoAnswer(f"no stream takes {subject}") from None
        try:
            ack = _decode_ack(message.data)
        except UNDECODABLE as error:
            raise BusError(f"a program other than JetStream answers on {subject}: {error}") from None
        if ack.error is not None:
            raise JetStreamError(ack.error.err_code, ack.error.description)
        return ack

    async def publish_with_retry(
        self, subject: str, body: bytes, headers: dict[str, str], *, patience_s: float
    ) -> PubAck:
        """Store a message as `store` does, retrying with backoff while the server is away or full.

        The headers must make a repeated message harmless.

        Raises:
            JetStreamError, Denied, TooLarge: refused for a reason that waiting does not cure.
            BusError: not stored within `patience_s`, or a stream was deleted.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + patience_s
        pause = 0.1
        reason = ""
        try:
            while True:
                self.check_streams()
                try:
                    async with self._bus.storing:
                        timeout_s = min(5.0, max(0.1, give_up - loop.time()))
                        return await self.store(subject, body, headers=headers, timeout_s=timeout_s)
                except JetStreamError as error:
                    if error.code not in _CURED_BY_TIME:
                        raise
                    problem: BusError = error
                    why = _CURED_BY_TIME[error.code]
                    if why == DISK_FULL:
                        problem = JetStreamError(error.code, f"{DISK_FULL} ({error}): {_MAKE_ROOM}")
                except (Denied, TooLarge):
                    raise
                except BusError as error:
                    problem, why = error, NOT_STORED
                    if isinstance(error, NoAnswer):
                        problem = NoAnswer(f"{NOT_STORED} ({error}): it is away or frozen, or its disk is full")
                if loop.time() + pause > give_up:
                    raise problem
                self._bus.unstored -= Counter([reason])
                reason = why
                self._bus.unstored[reason] += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)
        finally:
            if reason:
                self._bus.unstored -= Counter([reason])

    async def publish_if_last(self, subject: str, body: bytes, *, last: int, patience_s: float) -> int | None:
        """Store a message only where its subject has not changed, retrying as `publish_with_retry` does.

        Args:
            last: stream sequence of the newest message on the subject; 0: there is none.

        Returns:
            The stream sequence of the message. None: another message is the newest; it may be this one, stored by a try
            whose acknowledgement was lost.
        """
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
        try:
            return (await self.publish_with_retry(subject, body, headers, patience_s=patience_s)).seq
        except JetStreamError as error:
            if error.code != Code.WRONG_LAST_SEQUENCE:
                raise
            return None

    async def publish_or_last(
        self, stream: str, subject: str, body: bytes, *, last: int, patience_s: float
    ) -> Stored | None:
        """Store a message as `publish_if_last` does, and return the newest one on its subject.

        It has this body if the message is stored, by this try or by an earlier one; otherwise another was first.
        """
        sequence = await self.publish_if_last(subject, body, last=last, patience_s=patience_s)
        return await self.last_beyond(last, stream, subject) if sequence is None else Stored(subject, sequence, body)

    async def last(self, stream: str, subject: str, *, timeout_s: float = 5.0) -> Stored | None:
        """Return the last message that a stream holds on one subject, or None."""
        return _stored(await self._get(stream, f".{subject}", b"", timeout_s))

    async def last_beyond(self, sequence: int, stream: str, subject: str, *, timeout_s: float = 5.0) -> Stored | None:
        """Return the last message on a subject that is known to have one beyond a sequence.

        Any replica of the stream answers, and may be a second behind what the server acknowledged: it is asked again.

        Returns:
            The message; what there is instead if the known one does not appear, since it was removed.
        """
        give_up = asyncio.get_running_loop().time() + 1.0
        while True:
            stored = await self.last(stream, subject, timeout_s=timeout_s)
            if (stored is not None and stored.sequence > sequence) or asyncio.get_running_loop().time() > give_up:
                return stored
            await asyncio.sleep(0.02)

    async def last_of(self, stream: str, subjects_: Sequence[str]) -> dict[str, Stored]:
        """Return the last messages that a stream holds on several subjects, by subject, with one request.

        Args:
            subjects_: 1,024 at most, none with a wildcard; one without a message is left out of the result.
        """
        found, more = await self._read_batch(stream, {"multi_last": subjects_, "max_bytes": BATCH_BYTES}, 5.0)
        last = {message.subject: message for message in found}
        for subject in subjects_ if more else ():  # they are large
            if subject not in last and (message := await self.last(stream, subject)) is not None:
                last[subject] = message
        return last

    async def newest(self, stream: str, subject: str) -> Stored | None:
        """Return the last message that a stream holds on any matching subject, or None."""
        return _stored(await self._get(stream, "", msgspec.json.encode({"last_by_subj": subject}), 5.0))

    async def read(
        self, stream: str, subject: str, *, after: int = 0, batch: int = 256, timeout_s: float = 10.0
    ) -> AsyncIterator[Stored]:
        """Yield all messages of a stream that match `subject`, after sequence `after`, in order, up to now.

        No consumer is created; a reader costs no more than its requests.

        Raises:
            NoAnswer: the stream did not answer within `timeout_s`.
        """
        pending = True
        while pending:
            query = {"seq": after + 1, "next_by_subj": subject, "batch": batch, "max_bytes": BATCH_BYTES}
            messages, pending = await self._read_batch(stream, query, timeout_s)
            for message in messages:
                yield message
                after = message.sequence

    async def _get(self, stream: str, of: str, query: bytes, timeout_s: float) -> Msg:
        try:
            return await self._bus.request(f"$JS.API.DIRECT.GET.{stream}{of}", query, timeout_s=timeout_s)
        except NoResponders:
            raise NoAnswer(f"the stream {stream} is not available") from None

    async def _read_batch(self, stream: str, query: dict[str, Any], timeout_s: float) -> tuple[list[Stored], bool]:
        """Return the messages that answer a query for a batch, and whether more follow."""
        arrived: asyncio.Queue[Msg | BusError] = asyncio.Queue()
        subject = f"$JS.API.DIRECT.GET.{stream}"
        reply = self._bus.expect(arrived.put_nowait, subjects.SERVER, subject=subject, on_failed=arrived.put_nowait)
        found: list[Stored] = []
        try:
            await self._bus.publish(subject, msgspec.json.encode(query), reply=reply)
            while True:
                async with asyncio.timeout(timeout_s):
                    message = await arrived.get()
                if isinstance(message, BusError):
                    raise message
                if is_no_responders(message):
                    raise NoAnswer(f"the stream {stream} is not available")
                headers = message.headers or {}
                # Each message names the one before it; a reader that is too slow loses some on the way.
                before = found[-1].sequence if found else 0
                if int(headers.get("Nats-Last-Sequence", 0)) != before:
                    raise NoAnswer(f"messages of the stream {stream} were lost in transit")
                stored = _stored(message)
                if stored is not None:
                    found.append(stored)
                elif headers["Status"] == _END_OF_BATCH:
                    return found, headers["Nats-Num-Pending"] != "0"
                else:
                    return found, False
        except TimeoutError:
            raise NoAnswer(f"the stream {stream} did not answer within {timeout_s:g} s") from None
        finally:
            self._bus.forget(reply)

    async def count(self, stream: str, subject: str) -> int:
        """Return how many messages a stream holds whose subjects match, by the server's own count.

        With the first of them the server says how many come behind it. It adds them up in memory, a tenth of a second
        for a million, where the list of their subjects would take it seconds.
        """
        query = msgspec.json.encode({"seq": 1, "next_by_subj": subject, "batch": 1})
        first = await self._get(stream, "", query, 30.0)
        return 0 if _stored(first) is None else 1 + int((first.headers or {})["Nats-Num-Pending"])

    async def count_by_subject(self, stream: str, subject: str, *, timeout_s: float = 30.0) -> dict[str, int]:
        """Return how many messages a stream holds for each subject that matches."""
        counts: dict[str, int] = {}
        offset = 0
        while True:
            query = {"subjects_filter": subject, "offset": offset}
            info = await self.api(f"STREAM.INFO.{stream}", query, timeout_s=timeout_s)
            page = info["state"].get("subjects") or {}
            counts.update(page)
            # By what was read, not by what is new: subjects that come or go meanwhile move the pages.
            offset += len(page)
            if not page or offset >= info.get("total", 0):
                return counts


def _stored(message: Msg) -> Stored | None:
    """Return the message in the answer to a direct get, or None if there is none."""
    headers = message.headers or {}
    sequence = headers.get("Nats-Sequence")
    # With a sequence it is a stored message, whatever status its publisher made up for it.
    if sequence is not None:
        return Stored(headers["Nats-Subject"], int(sequence), message.data, headers.get("Nats-Time-Stamp", ""))
    status = headers.get("Status", "")
    if status in (_NOT_FOUND, _END_OF_BATCH):
        return None
    raise JetStreamError(int(status) if status.isdecimal() else 0, headers.get("Description") or "refused")
