"""Tasks as messages, read from the queue of their agent; a large one is stored as a blob."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gymq.bus import Bus, blobs
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import (
    BadMessage,
    BlobRef,
    Count,
    Failure,
    FailureClass,
    Index,
    InstanceName,
    Stage,
    Task,
    Token,
)


class TaskHead(msgspec.Struct, kw_only=True):
    """The fields by which a task of any version can be given an outcome."""

    type: Annotated[str, msgspec.Meta(pattern=r"\Atask\.v[0-9]{1,9}\Z")]
    run: Token
    task_index: Index
    rollout_index: Index
    agent: InstanceName
    row: bytes
    num_rollouts: Count | None = None
    replaces: Index | None = None


_decode = Decoder(Task, BlobRef)
_decode_head = Decoder(TaskHead)


class UnreadableTask(BadMessage):
    """A task that another version of gymq can read.

    Attributes:
        task: what can be read of it.
    """

    def __init__(self, head: TaskHead, problem: str) -> None:
        super().__init__(problem)
        known = {name: value for name, value in msgspec.structs.asdict(head).items() if name != "type"}
        self.task = Task(**known, timeout_s=1.0)


async def read_task(bus: Bus, body: bytes) -> Task:
    """Decode the task in a body, and fetch its blob if need be.

    Raises:
        UnreadableTask: it is one of another version.
        BadMessage: the body is not a task.
    """
    task: Task = await blobs.read(bus, body, _read, "task")
    return task


def _read(body: bytes) -> Task | BlobRef:
    try:
        message: Task | BlobRef = _decode(body)
        return message
    except BadMessage as error:
        try:
            head = _decode_head(body)
        except BadMessage:
            raise error from None
        raise UnreadableTask(head, str(error)) from None


def failed_in_queue(
    task: Task, failure_class: FailureClass, message: str, *, retryable: bool, worker: str = ""
) -> Failure:
    """Return the failure of a task that reached no outcome with an agent."""
    return Failure(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        num_rollouts=task.num_rollouts,
        agent=task.agent,
        row=task.row,
        worker=worker,
        failure_class=failure_class,
        stage=Stage.QUEUE,
        message=message,
        retryable=retryable,
    )


def cancelled_outcome(task: Task, *, worker: str = "") -> Failure:
    """Return the outcome of a rollout that was cancelled."""
    return failed_in_queue(task, FailureClass.CANCELLED, "cancelled", retryable=False, worker=worker)
