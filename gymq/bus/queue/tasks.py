"""Tasks as messages, read from the queue of their agent; a large one is stored as a blob."""

from __future__ import annotations

from gymq.bus import Bus, blobs
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BlobRef, Failure, FailureClass, Stage, Task

_decode = Decoder(Task, BlobRef)


async def read_task(bus: Bus, body: bytes) -> Task:
    """Decode the task in a body, and fetch its blob if need be.

    Raises:
        BadMessage: the body is not a valid task.
    """
    task: Task = await blobs.read(bus, body, _decode, "task")
    return task


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
