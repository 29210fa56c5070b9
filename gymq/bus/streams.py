"""The streams and durable consumers that gymq needs.

The operator of the cluster creates them; workers only use them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from gymq.bus.errors import NoAnswer
from gymq.bus.jetstream import Code, JetStream, JetStreamError
from gymq.errors import BusError
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, ServedAgent
from gymq.protocol.subjects import TaskQueueName

TASKS = "TASKS"
ROLLOUTS = "ROLLOUTS"
JOURNAL = "JOURNAL"
PARTS = "PARTS"
RUNS = "RUNS"
WEIGHTS = "WEIGHTS"
DEAD_LETTERS = "DEAD_LETTERS"
ADVISORIES = "ADVISORIES"

ACK_WAIT_S = 30.0  # an agent that is silent for so long has lost its task
# Of one task; then the janitor stores a failure. Agents find a task that kills them sooner (`gymq.bus.rpc.quarantine`),
# and the innocent ones that were in flight with several of those are delivered more often than that.
MAX_DELIVERIES = 100
WATCH_EVERY_S = 5.0  # whether a stream was deleted
MAX_IN_FLIGHT = 1_000_000  # of one queue, where the run sets no limit
MAX_WAITING_TASKS = 100_000  # of one run and agent; a submitter beyond it waits

_SECOND = 1_000_000_000
_decode_agent = Decoder(ServedAgent)
JOURNAL_MAX_AGE = 7 * 24 * 3600 * _SECOND  # of a rollout that never ended


def stream_configs(replicas: int = 1) -> dict[str, dict[str, Any]]:
    """Return the configuration of each stream, in the form of JetStream's API."""
    common = {"storage": "file", "num_replicas": replicas, "discard": "new", "allow_direct": True}
    return {
        TASKS: common
        | {
            "subjects": [subjects.SUBMISSION.pattern, subjects.TASK.wildcard, subjects.URGENT_TASK.wildcard],
            "retention": "workqueue",
            "max_msgs_per_subject": MAX_WAITING_TASKS,
            "discard_new_per_subject": True,
            "duplicate_window": 3600 * _SECOND,
        },
        ROLLOUTS: common
        | {
            "subjects": [subjects.ALL_ROLLOUTS],
            "max_msgs_per_subject": 1,
            "republish": {"src": subjects.ALL_ROLLOUTS, "dest": subjects.ALL_DONE, "headers_only": True},
        },
        JOURNAL: common
        | {
            "subjects": [subjects.JOURNAL.wildcard],
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "max_age": JOURNAL_MAX_AGE,
        },
        PARTS: common | {"subjects": [subjects.ALL_PARTS], "max_msgs_per_subject": 1, "allow_msg_ttl": True},
        RUNS: common
        | {
            "subjects": [
                *(subjects.RUN.wildcard, subjects.PROFILE.wildcard, subjects.CANCELLED.wildcard),
                *(subjects.STEERING.wildcard, subjects.AGENT.wildcard),
            ],
            "max_msgs_per_subject": 1,
        },
        WEIGHTS: common
        | {
            "subjects": [subjects.WEIGHTS.wildcard, subjects.WEIGHTS_PART.wildcard],
            "max_msgs_per_subject": 1,
            "republish": {"src": subjects.WEIGHTS.wildcard, "dest": subjects.PUSHED_AGAIN, "headers_only": True},
        },
        DEAD_LETTERS: common
        | {
            "subjects": [subjects.ALL_DEAD_LETTERS],
            "discard": "old",
            "max_msgs": 1_000_000,
            "duplicate_window": 3600 * _SECOND,
        },
        ADVISORIES: common
        | {
            "subjects": [subjects.MAX_DELIVERIES.pattern],
            "retention": "workqueue",
            "discard": "old",
            "max_msgs": 1_000_000,
        },
    }


async def look(js: JetStream) -> set[str]:
    """Return which streams are there, and note them in `js.seen`."""
    names = list(stream_configs())
    exist = await asyncio.gather(*(_exists(js, name) for name in names))
    there = {name for name, exists in zip(names, exist, strict=True) if exists}
    js.seen |= there
    return there


async def watch(js: JetStream, on_missing: Callable[[], None]) -> NoReturn:
    """Note in `js.missing` when a stream that was there is deleted: whoever waits for what it held would wait for ever.

    Args:
        on_missing: called at each look that finds it so.
    """
    suspects: set[str] = set()
    while True:
        absent: set[str] = set()
        with contextlib.suppress(BusError):
            absent = js.seen - await look(js)
            if not absent:
                js.missing = ""
        gone = sorted(absent & suspects)  # at two looks, since a cluster may be about to make them
        suspects = absent
        if gone:
            js.missing = f"the stream {gone[0]} was deleted from the NATS server; a cluster that starts makes it again"
            on_missing()
        await asyncio.sleep(WATCH_EVERY_S)


async def _exists(js: JetStream, stream: str) -> bool:
    try:
        await js.api(f"STREAM.INFO.{stream}")
    except JetStreamError as error:
        if error.code != Code.STREAM_NOT_FOUND:
            raise
        return False
    return True


async def ensure(
    js: JetStream,
    agents: list[str],
    *,
    replicas: int = 1,
    ack_wait_s: float | None = None,
    patience_s: float = 10.0,
) -> None:
    """Make or update all streams, and the record of each agent instance.

    Args:
        ack_wait_s: after how many seconds of silence an agent has lost its tasks; None: `ACK_WAIT_S`.

    Raises:
        BusError: JetStream is off, full, or not ready within `patience_s`.
    """
    give_up = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            await js.api("INFO", timeout_s=2.0)
            break
        except NoAnswer as error:
            if asyncio.get_running_loop().time() > give_up:
                raise BusError(f"cannot make the streams: {error}") from None
            await asyncio.sleep(0.1)
    for name, config in stream_configs(replicas).items():
        await _ensure_stream(js, {"name": name, **config})
    await ensure_consumers_of_services(js)
    for agent in agents:
        await ensure_agent(js, agent, ack_wait_s=ack_wait_s)


async def ensure_consumers_of_services(js: JetStream) -> None:
    """Make the consumers of intake and janitor, if they are not there."""
    await ensure_consumer(js, TASKS, "intake", {"filter_subject": subjects.SUBMISSION.pattern, "max_ack_pending": 1000})
    await ensure_consumer(js, ADVISORIES, "janitor", {"max_ack_pending": 1000})


async def ensure_agent(js: JetStream, agent: str, *, ack_wait_s: float | None = None) -> None:
    """Record that an agent instance is served, so that the tasks of each run get a queue for it."""
    record = ServedAgent(agent=agent, ack_wait_s=ACK_WAIT_S if ack_wait_s is None else ack_wait_s)
    subject, body = subjects.AGENT.of(agent), encode(record)
    stored = await js.last(RUNS, subject)
    if stored is None or stored.data != body:
        await js.store(subject, body)


async def served_agents(js: JetStream) -> dict[str, float]:
    """Return the seconds of silence after which tasks are redelivered, by the token of each agent that is served.

    An agent whose record cannot be read is served, too: anything may have been published over it.
    """
    records = js.read(RUNS, subjects.AGENT.wildcard)
    return {stored.subject.rpartition(".")[2]: _ack_wait_s(stored.data) async for stored in records}


async def has_agent(js: JetStream, agent: str) -> bool:
    """Return whether some cluster serves, or served, this agent instance."""
    return await js.newest(RUNS, subjects.AGENT.of(agent)) is not None


async def ack_wait_s(js: JetStream, agent: str) -> float:
    """Return the seconds of silence after which an agent's tasks are redelivered.

    Raises:
        BusError: the agent is not served, or there is no answer.
    """
    stored = await js.newest(RUNS, subjects.AGENT.of(agent))
    if stored is None:
        raise BusError(f"the agent {agent!r} has no task queue: start its cluster with the password of the operator")
    return _ack_wait_s(stored.data)


def _ack_wait_s(record: bytes) -> float:
    try:
        return float(_decode_agent(record).ack_wait_s)
    except BadMessage:  # anything may have been published over it
        return ACK_WAIT_S


async def ensure_queue(
    js: JetStream, queue: TaskQueueName, *, ack_wait_s: float, max_in_flight: int | None = None
) -> None:
    """Create or update the consumer that agents take the tasks of one run from."""
    config = {
        "filter_subject": queue.subject,
        "max_ack_pending": max_in_flight or MAX_IN_FLIGHT,
        "max_deliver": MAX_DELIVERIES,
        "ack_wait": int(ack_wait_s * _SECOND),
    }
    await ensure_consumer(js, TASKS, queue.consumer, config)


async def queues(js: JetStream) -> dict[str, TaskQueueName]:
    """Return all queues of tasks, by the names of their consumers."""
    names = await _listed(js, f"CONSUMER.NAMES.{TASKS}")
    return {name: queue for name in names if (queue := TaskQueueName.of_consumer(name)) is not None}


async def consumers(js: JetStream, stream: str) -> list[dict[str, Any]]:
    """Return the durable consumers of a stream, in the form of JetStream's API."""
    return await _listed(js, f"CONSUMER.LIST.{stream}")


async def reclaim_in_flight(js: JetStream) -> None:
    """Redeliver at once the tasks that were in flight when their agents died.

    No agent may be connected to the server.
    """
    held = [
        info["config"]
        for info in await consumers(js, TASKS)
        if info["num_ack_pending"] and TaskQueueName.of_consumer(info["name"]) is not None
    ]
    if not held:
        return
    for config in held:
        await ensure_consumer(js, TASKS, config["name"], config | {"ack_wait": _SECOND // 8})
    await asyncio.sleep(0.5)  # The server notices by then that they have been held for too long.
    for config in held:
        await ensure_consumer(js, TASKS, config["name"], config)


async def _listed(js: JetStream, request: str) -> list[Any]:
    found: list[Any] = []
    while True:
        page = await js.api(request, {"offset": len(found)})
        found += page["consumers"] or []
        if not page["consumers"] or len(found) >= page["total"]:
            return found


async def remove_consumer(js: JetStream, stream: str, name: str) -> None:
    """Remove a durable consumer, if it is there; the messages stay."""
    try:
        await js.api(f"CONSUMER.DELETE.{stream}.{name}")
    except JetStreamError as error:
        if error.code != Code.CONSUMER_NOT_FOUND:
            raise


async def close_queue(js: JetStream, name: str) -> None:
    """Remove the consumer of a queue, unless it has tasks by now.

    The next consumer would deliver what is in flight again. This one delivers nothing while it is looked at.
    """
    # If the process that closes it is killed here, the queue delivers again after ten seconds.
    until = datetime.now(UTC) + timedelta(seconds=10.0)
    try:
        await js.api(f"CONSUMER.PAUSE.{TASKS}.{name}", {"pause_until": until.isoformat()})
        state = await js.api(f"CONSUMER.INFO.{TASKS}.{name}")
        if state["num_pending"] or state["num_ack_pending"]:
            await js.api(f"CONSUMER.PAUSE.{TASKS}.{name}")
            return
    except JetStreamError as error:
        if error.code != Code.CONSUMER_NOT_FOUND:
            raise
    await remove_consumer(js, TASKS, name)


async def ensure_consumer(js: JetStream, stream: str, name: str, config: dict[str, Any]) -> None:
    """Create or update a durable pull consumer."""
    full = {
        "durable_name": name,
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT_S * _SECOND),
        "max_waiting": 8192,
        **config,
    }
    await js.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": full})


async def delete_tasks(js: JetStream, run: str) -> None:
    """Remove the tasks of a run that are queued or in flight; its journals and outcomes stay."""
    await _purge(
        js,
        (TASKS, subjects.TASK.of(run)),
        (TASKS, subjects.URGENT_TASK.of(run)),
        (PARTS, subjects.TASK_PART.below(run)),
    )


async def delete_run(js: JetStream, run: str) -> None:
    """Remove everything that is stored of a run, and its queues."""
    await delete_tasks(js, run)
    for name, queue in (await queues(js)).items():
        if queue.run == run:
            await remove_consumer(js, TASKS, name)
    await _purge(
        js,
        (JOURNAL, subjects.JOURNAL.below(run)),
        (ROLLOUTS, subjects.ROLLOUT.below(run)),
        (PARTS, subjects.ROLLOUT_PART.below(run)),
        (DEAD_LETTERS, subjects.DEAD_LETTER_OF_RUN.of(subjects.EACH, run)),
        (RUNS, subjects.CANCELLED.of(run)),
        (RUNS, subjects.PROFILE.of(run)),
        (RUNS, subjects.STEERING.of(run)),
        (RUNS, subjects.RUN.of(run)),
    )


async def _purge(js: JetStream, *parts: tuple[str, str]) -> None:
    for stream, subject in parts:
        await js.api(f"STREAM.PURGE.{stream}", {"filter": subject}, timeout_s=60.0)


async def remove_message(js: JetStream, stream: str, sequence: int) -> None:
    """Remove one message, if it is there."""
    try:
        await js.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    except JetStreamError:
        # Of a message that is gone the server says the same as of one that it cannot delete.
        found = await anext(js.read(stream, ">", after=sequence - 1, batch=1), None)
        if found is not None and found.sequence == sequence:
            raise


async def _ensure_stream(js: JetStream, config: dict[str, Any]) -> None:
    try:
        await js.api(f"STREAM.CREATE.{config['name']}", config)
    except JetStreamError as error:
        if error.code != Code.EXISTS_DIFFERENTLY:
            raise BusError(f"cannot create the stream {config['name']}: {error}") from None
        await js.api(f"STREAM.UPDATE.{config['name']}", config)
