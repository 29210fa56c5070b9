"""Gives an outcome to tasks that were delivered too often without one, and to those of an agent that is not served."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.consumer import Consumer
from gymq.bus.jetstream import Code, JetStreamError
from gymq.bus.pull import Delivery
from gymq.bus.queue.dead_letters import dead_letter_failure, store_dead_letter
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.tasks import UnreadableTask, failed_in_queue, read_task
from gymq.bus.repeating import repeat
from gymq.processes.background import end_task
from gymq.protocol import subjects
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import BadMessage, FailureClass

log = logging.getLogger("gymq.janitor")


class _Advisory(msgspec.Struct):
    stream_seq: int
    deliveries: int = 0


_decode_advisory = msgspec.json.Decoder(_Advisory).decode


class Janitor:
    """Consumes the server's advisories on tasks that reached their last delivery, and looks for unserved tasks."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._outcomes = OutcomeStore(bus)
        self._consumer = Consumer(bus, streams.ADVISORIES, "janitor", self._handle)

        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._consumer.start()
        looking = repeat(lambda: self.end_unserved(24 * 3600.0), log, "the queues were not checked", pause_s=600.0)
        self._looking = asyncio.create_task(looking)

    async def stop(self) -> None:
        await end_task(self._looking)
        await self._consumer.stop()

    async def end_unserved(self, after_s: float) -> None:
        """End the tasks that have waited for so many seconds for an agent that no cluster serves or served."""
        is_served: dict[str, bool] = {}
        for pattern in (subjects.TASK.wildcard, subjects.URGENT_TASK.wildcard):
            for subject in await self._js.count_by_subject(streams.TASKS, pattern):
                agent = subject.rpartition(".")[2]
                if agent not in is_served:
                    is_served[agent] = subjects.is_token(agent) and await streams.has_agent(self._js, agent)
                if is_served[agent]:
                    continue
                async for stored in self._js.read(streams.TASKS, subject, batch=64):
                    if time.time() - datetime.fromisoformat(stored.stored_at).timestamp() < after_s:
                        break
                    problem = f"no agent named {agent!r} is running; start one and collect again"
                    await self._end(stored.subject, stored.data, stored.sequence, FailureClass.NO_WORKER, problem)

    async def _handle(self, delivery: Delivery) -> None:
        try:
            await self._settle(_decode_advisory(delivery.data))
        except UNDECODABLE as error:
            log.warning("an advisory that cannot be read: %s", error)
        await delivery.ack()

    async def _settle(self, advisory: _Advisory) -> None:
        try:
            answer = await self._js.api(f"STREAM.MSG.GET.{streams.TASKS}", {"seq": advisory.stream_seq})
        except JetStreamError as error:
            if error.code == Code.MESSAGE_NOT_FOUND:
                return  # settled in the meantime
            raise
        subject = answer["message"]["subject"]
        body = msgspec.convert(answer["message"].get("data", ""), bytes)
        problem = f"delivered {advisory.deliveries} times, and no agent finished it"
        too_often = FailureClass.REDELIVERED_TOO_OFTEN
        await self._end(subject, body, advisory.stream_seq, too_often, problem)

    async def _end(self, subject: str, body: bytes, sequence: int, failure_class: FailureClass, problem: str) -> None:
        """Store a failure for a task in the queue and a dead letter about it, then remove it."""
        try:
            try:
                task = await read_task(self._bus, body)
            except UnreadableTask as error:
                task, problem = error.task, f"{problem}; it is a task of another version of gymq: {error}"
            outcome = failed_in_queue(task, failure_class, problem, retryable=True)
            await self._outcomes.put(outcome, replaces=task.replaces, patience_s=30.0)
            await dead_letter_failure(self._bus, "janitor", task, subject, body)
        except BadMessage as error:
            reason = f"not a task: {error}"
            await store_dead_letter(self._bus, "janitor", subject, reason, body, sequence=sequence)
        await streams.remove_message(self._js, streams.TASKS, sequence)
