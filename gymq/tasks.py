"""Tasks as messages: put into the queue of their agent, read from it; a large one travels as a claim."""

from __future__ import annotations

from gymq import parts, subjects
from gymq.bus import Bus
from gymq.jetstream import JetStream
from gymq.messages import BadMessage, Claim, Failure, FailureClass, Stage, Task, decoder, encode

_decode = decoder(Task, Claim)


async def submit(bus: Bus, task: Task, *, once: str, urgent: bool, patience_s: float) -> None:
    """Put a task into the queue.

    Args:
        once: within an hour the server takes one task for each rollout and value of this.
        patience_s: seconds to wait while the server is away or full.

    Raises:
        BusError: not in the queue.
        BadMessage: the task has no wire form.
    """
    of = (task.run, task.task_index, task.rollout_index)
    body = encode(task)
    if len(body) > bus.max_body_bytes:
        body = await parts.put(bus, body, subjects.task_parts(*of, parts.digest(body)[:32]))
    subject = (subjects.urgent_tasks if urgent else subjects.tasks)(task.run, task.agent)
    headers = {"Nats-Msg-Id": "{}/{}/{}/{}".format(*of, once)}
    await JetStream(bus).store_surely(subject, body, headers, patience_s=patience_s)


async def read_task(bus: Bus, body: bytes) -> Task:
    """The task in a body, fetched from its parts if need be.

    Raises:
        BadMessage: it is none.
        BusError: the parts cannot be read.
    """
    message: Task | Claim = _decode(body)
    if isinstance(message, Claim):
        message = _decode(await parts.get(bus, message, "task"))
    if not isinstance(message, Task):
        raise BadMessage("a claim on a claim")
    return message


def failed_in_queue(
    task: Task, failure_class: FailureClass, message: str, *, retryable: bool, attempt: int = 0, worker: str = ""
) -> Failure:
    """The outcome of a task that no agent brought to one."""
    return Failure(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        num_rollouts=task.num_rollouts,
        agent=task.agent,
        row=task.row,
        attempt=attempt,
        worker=worker,
        failure_class=failure_class,
        stage=Stage.QUEUE,
        message=message,
        retryable=retryable,
    )
