"""Gives an outcome to tasks that were delivered too often without one."""

from __future__ import annotations

import logging

import msgspec

from gymq import streams
from gymq.bus import Bus
from gymq.consumer import Consumer
from gymq.dead_letters import bury, bury_failure
from gymq.jetstream import MESSAGE_NOT_FOUND, Delivery, JetStream, JetStreamError
from gymq.messages import BadMessage, FailureClass
from gymq.outcome_store import OutcomeStore
from gymq.tasks import failed_in_queue, read_task

log = logging.getLogger("gymq.janitor")


class _Advisory(msgspec.Struct):
    stream_seq: int
    deliveries: int = 0


_decode_advisory = msgspec.json.Decoder(_Advisory).decode


class Janitor:
    """Consumes the server's advisories on tasks that reached their last delivery."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = JetStream(bus)
        self._outcomes = OutcomeStore(bus)
        self._consumer = Consumer(bus, streams.ADVISORIES, "janitor", self._handle)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            await self._settle(_decode_advisory(delivery.data))
        except msgspec.DecodeError as error:
            log.warning("an advisory that cannot be read: %s", error)
        await delivery.ack()

    async def _settle(self, advisory: _Advisory) -> None:
        try:
            answer = await self._js.api(f"STREAM.MSG.GET.{streams.TASKS}", {"seq": advisory.stream_seq})
        except JetStreamError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return  # settled in the meantime
            raise
        subject = answer["message"]["subject"]
        body = msgspec.convert(answer["message"].get("data", ""), bytes)
        try:
            task = await read_task(self._bus, body)
            outcome = failed_in_queue(
                task,
                FailureClass.REDELIVERED_TOO_OFTEN,
                f"delivered {advisory.deliveries} times, and no agent finished it",
                retryable=True,
                attempt=advisory.deliveries,
            )
            await self._outcomes.put(outcome, replaces=task.replaces, patience_s=30.0)
            await bury_failure(self._bus, "janitor", task, subject, body)
        except BadMessage as error:
            reason = f"not a task: {error}"
            await bury(self._bus, "janitor", subject, reason, body, sequence=advisory.stream_seq)
        await streams.remove_message(self._js, streams.TASKS, advisory.stream_seq)
