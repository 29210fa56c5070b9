"""The streams and durable consumers that gymq needs.

The operator of the cluster creates them; workers only use them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gymq.bus.connection import BusError, NoAnswer
from gymq.bus.jetstream import CONSUMER_NOT_FOUND, EXISTS_DIFFERENTLY, JetStream, JetStreamError
from gymq.protocol import subjects

TASKS = "TASKS"
ROLLOUTS = "ROLLOUTS"
JOURNAL = "JOURNAL"
PARTS = "PARTS"
RUNS = "RUNS"
WEIGHTS = "WEIGHTS"
DEAD_LETTERS = "DEAD_LETTERS"
ADVISORIES = "ADVISORIES"

ACK_WAIT_S = 30.0  # an agent that is silent for so long has lost its task
# Of one task; then the janitor stores a failure. Agents find a task that kills them sooner (`gymq.rpc.quarantine`), and
# the innocent ones that were in flight with several of those are delivered more often than that.
MAX_DELIVERIES = 100
TAKE_BACK_S = 0.5  # until the server has noticed that tasks have been held for too long
MAX_WAITING_TASKS = 100_000  # of one run and agent; a submitter beyond it waits

_SECOND = 1_000_000_000
JOURNAL_MAX_AGE = 7 * 24 * 3600 * _SECOND  # of a rollout that never ended


def stream_configs(replicas: int = 1) -> dict[str, dict[str, Any]]:
    """Return the configuration of each stream, in the form of JetStream's API."""
    common = {"storage": "file", "num_replicas": replicas, "discard": "new", "allow_direct": True}
    return {
        TASKS: common
        | {
            "subjects": [subjects.SUBMIT, subjects.ALL_TASKS, subjects.ALL_URGENT_TASKS],
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
            "subjects": [subjects.ALL_JOURNALS],
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "max_age": JOURNAL_MAX_AGE,
        },
        PARTS: common | {"subjects": [subjects.ALL_PARTS], "max_msgs_per_subject": 1, "allow_msg_ttl": True},
        RUNS: common
        | {
            "subjects": [subjects.ALL_RUNS, subjects.ALL_PROFILES, subjects.ALL_CANCELLED],
            "max_msgs_per_subject": 1,
        },
        WEIGHTS: common
        | {
            "subjects": [subjects.ALL_WEIGHTS, subjects.ALL_PARTS_OF_WEIGHTS],
            "max_msgs_per_subject": 1,
            "republish": {"src": subjects.ALL_WEIGHTS, "dest": subjects.PUSHED_AGAIN, "headers_only": True},
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
            "subjects": ["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASKS.>"],
            "retention": "workqueue",
            "discard": "old",
            "max_msgs": 1_000_000,
        },
    }


async def ensure(
    js: JetStream,
    agents: list[str],
    *,
    replicas: int = 1,
    ack_wait_s: float | None = None,
    patience_s: float = 10.0,
) -> None:
    """Make or update all streams, and the consumers of each agent instance.

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
                raise BusError(f"JetStream is not available on this server: {error}") from None
            await asyncio.sleep(0.1)
    for name, config in stream_configs(replicas).items():
        await _ensure_stream(js, {"name": name, **config})
    await ensure_consumer(js, TASKS, "intake", {"filter_subject": subjects.SUBMIT, "max_ack_pending": 1000})
    await ensure_consumer(js, ADVISORIES, "janitor", {"max_ack_pending": 1000})
    for agent in agents:
        await ensure_agent(js, agent, ack_wait_s=ack_wait_s)


async def ensure_agent(js: JetStream, agent: str, *, ack_wait_s: float | None = None) -> None:
    """Create or update the consumers that an agent instance takes its tasks from."""
    for name, subject in (
        (agent_consumer(agent), subjects.tasks_of_agent(agent)),
        (urgent_consumer(agent), subjects.urgent_tasks_of_agent(agent)),
    ):
        config: dict[str, Any] = {
            "filter_subject": subject,
            "max_ack_pending": 1_000_000,
            "max_deliver": MAX_DELIVERIES,
        }
        if ack_wait_s is not None:
            config["ack_wait"] = int(ack_wait_s * _SECOND)
        await ensure_consumer(js, TASKS, name, config)


async def reclaim_in_flight(js: JetStream, agents: list[str], *, ack_wait_s: float | None = None) -> None:
    """Redeliver at once the tasks that were in flight when their agents died.

    No agent may be connected to the server.

    Args:
        ack_wait_s: as for `ensure`.

    Raises:
        BusError
    """
    held = [agent for agent in agents if await _has_tasks_in_flight(js, agent)]
    if not held:
        return
    for agent in held:
        await ensure_agent(js, agent, ack_wait_s=TAKE_BACK_S / 4)
    await asyncio.sleep(TAKE_BACK_S)
    for agent in held:
        await ensure_agent(js, agent, ack_wait_s=ack_wait_s)


async def _has_tasks_in_flight(js: JetStream, agent: str) -> bool:
    for name in (agent_consumer(agent), urgent_consumer(agent)):
        info = await js.api(f"CONSUMER.INFO.{TASKS}.{name}")
        if info["num_ack_pending"]:
            return True
    return False


async def ack_wait_s(js: JetStream, agent: str) -> float:
    """Return the seconds of silence after which an agent's tasks are redelivered.

    Raises:
        BusError: there is no such queue, or no answer.
    """
    try:
        info = await js.api(f"CONSUMER.INFO.{TASKS}.{agent_consumer(agent)}")
    except JetStreamError as error:
        raise BusError(f"the agent {agent!r} has no task queue: {error}") from None
    return float(info["config"]["ack_wait"]) / _SECOND


def agent_consumer(agent: str) -> str:
    return f"agents_{subjects.instance(agent, 'agent')}"


def urgent_consumer(agent: str) -> str:
    return f"urgent_{subjects.instance(agent, 'agent')}"


async def has_agent(js: JetStream, agent: str) -> bool:
    """Return whether some cluster serves, or served, this agent instance."""
    try:
        await js.api(f"CONSUMER.INFO.{TASKS}.{agent_consumer(agent)}")
    except JetStreamError as error:
        if error.code == CONSUMER_NOT_FOUND:
            return False
        raise
    return True


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


async def delete_run(js: JetStream, run: str) -> None:
    """Remove everything that is stored of a run."""
    for stream, subject in (
        (TASKS, subjects.tasks_of_run(run)),
        (ROLLOUTS, subjects.rollouts_of_run(run)),
        (JOURNAL, subjects.journals_of_run(run)),
        (PARTS, subjects.task_parts_of_run(run)),
        (PARTS, subjects.rollout_parts_of_run(run)),
        (TASKS, subjects.urgent_tasks_of_run(run)),
        (DEAD_LETTERS, subjects.dead_letters_of_run(run)),
        (RUNS, subjects.cancelled_of_run(run)),
        (RUNS, subjects.profile(run)),
        (RUNS, subjects.run_record(run)),
    ):
        await js.api(f"STREAM.PURGE.{stream}", {"filter": subject}, timeout_s=60.0)


async def remove_message(js: JetStream, stream: str, sequence: int) -> None:
    """Remove one message, if it is there.

    Raises:
        BusError: it is there still.
    """
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
        if error.code != EXISTS_DIFFERENTLY:
            raise BusError(f"cannot create the stream {config['name']}: {error}") from None
        await js.api(f"STREAM.UPDATE.{config['name']}", config)
