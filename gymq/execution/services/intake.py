"""Turns what people publish to `gym.tasks` into tasks; what cannot be a task becomes a dead letter."""

from __future__ import annotations

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.consumer import Consumer
from gymq.bus.discovery import not_running
from gymq.bus.pull import Delivery
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import store_dead_letter
from gymq.data.rows import AgentRef
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import BadMessage, Submission, Task

PATIENCE_S = 20.0  # less than the time after which a submission is delivered again

_decode_submission = Decoder(Submission)


class _Head(msgspec.Struct):
    responses_create_params: dict[str, object]
    agent_ref: AgentRef | None = None


_decode_head = msgspec.json.Decoder(_Head).decode


class Intake:
    """Consumes `gym.tasks`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._js = bus.js
        self._queue = QueueClient(bus, submitter="intake")
        self._consumer = Consumer(bus, streams.TASKS, "intake", self._handle)
        self._known_agents: set[str] = set()

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def _handle(self, delivery: Delivery) -> None:
        await self._take(delivery)
        await delivery.ack()

    async def _take(self, delivery: Delivery) -> None:
        try:
            submission, row, agent = read_submission(delivery.data)
        except BadMessage as error:
            reason = f"not a task: {error}"
            await store_dead_letter(
                self._bus, "intake", delivery.subject, reason, delivery.data, sequence=delivery.sequence
            )
            return
        # The sequence is the same when this submission is delivered again, so its tasks are too.
        task_index = delivery.sequence if submission.task_index is None else submission.task_index
        if not await self._serves(agent):
            reason = not_running(agent, "agent")
            of = subjects.RolloutId(submission.run, task_index, 0)
            await store_dead_letter(
                self._bus, "intake", delivery.subject, reason, delivery.data, sequence=delivery.sequence, of=of
            )
            return
        await self._queue.open_run(submission.run, patience_s=PATIENCE_S)
        for rollout_index in range(submission.num_repeats):
            task = Task(
                run=submission.run,
                task_index=task_index,
                rollout_index=rollout_index,
                agent=agent,
                row=row,
                timeout_s=submission.timeout_s or 3600.0,
                num_rollouts=submission.num_repeats,
            )
            await self._queue.submit(task, patience_s=PATIENCE_S)
            await delivery.in_progress()

    async def _serves(self, agent: str) -> bool:
        if agent not in self._known_agents and await streams.has_agent(self._js, agent):
            self._known_agents.add(agent)
        return agent in self._known_agents


def read_submission(body: bytes) -> tuple[Submission, bytes, str]:
    """Decode a submission; return it with its row as JSON text and the agent it is for.

    Raises:
        BadMessage: it is not valid; one sentence that names the field.
    """
    submission: Submission = _decode_submission(body)
    try:
        row = msgspec.json.encode(msgspec.msgpack.decode(submission.row))
        head = _decode_head(row)
    except UNDECODABLE as error:
        raise BadMessage(f"`row`: {error}") from None
    except (OverflowError, TypeError, ValueError) as error:
        raise BadMessage(f"`row` has no JSON form: {error}") from None
    agent = submission.agent or (head.agent_ref.name if head.agent_ref else None)
    if agent is None:
        raise BadMessage("`agent` is missing: name the agent instance there or in `row.agent_ref.name`")
    try:
        subjects.instance(agent, "agent")
    except subjects.BadToken as error:
        raise BadMessage(f"`row.agent_ref.name`: {error}") from None
    return submission, row, agent
