"""Every subject and queue group. No other module spells one out.

The table `SUBJECTS` is the contract that `subjects.md` shows; a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROLLOUT = re.compile(r"gym\.rollouts\.([A-Za-z0-9_-]{1,64})\.([0-9]{1,16})\.([0-9]{1,16})")

MAX_INDEX = 2**53  # of tasks and rollouts: above it JSON readers that use doubles lose digits

INBOX_PREFIX = "_INBOX_"
SERVER = "server"  # answers for what is stored and for JetStream's API; no process may
ANYBODY = "any"  # answers where people ask by hand
SUBMIT = "gym.tasks"
ALL_TASKS = "gym.tasks.*.*"
ALL_URGENT_TASKS = "gym.urgent.*.*"
ALL_ROLLOUTS = "gym.rollouts.>"
ALL_PROFILES = "gym.profiles.*"
ALL_RUNS = "gym.runs.*"
ALL_CANCELLED = "gym.cancelled.*.*"
ALL_DEAD_LETTERS = "gym.dead.>"
ALL_LOADS = "gym.load.*"

MODEL_GROUP = "model"
RESOURCES_GROUP = "resources"


class BadToken(ValueError):
    """A name that cannot be part of a subject."""


def token(value: str, what: str = "name") -> str:
    """`value`, if it can be one token of a subject: 1 to 64 of A-Z a-z 0-9 _ -."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        shown = value if isinstance(value, str) and len(value) <= 80 else type(value).__name__
        raise BadToken(f"{what} {shown!r} must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
    return value


def is_token(value: str) -> bool:
    """Return whether a text can be one token of a subject, as `token` says."""
    return _TOKEN.fullmatch(value) is not None


def tasks(run: str, agent: str) -> str:
    return f"gym.tasks.{token(run, 'run')}.{token(agent, 'agent')}"


def urgent_tasks(run: str, agent: str) -> str:
    return f"gym.urgent.{token(run, 'run')}.{token(agent, 'agent')}"


def urgent_tasks_of_agent(agent: str) -> str:
    return f"gym.urgent.*.{token(agent, 'agent')}"


def urgent_tasks_of_run(run: str) -> str:
    return f"gym.urgent.{token(run, 'run')}.*"


def tasks_of_agent(agent: str) -> str:
    return f"gym.tasks.*.{token(agent, 'agent')}"


def tasks_of_run(run: str) -> str:
    return f"gym.tasks.{token(run, 'run')}.*"


def rollout(run: str, task_index: int, rollout_index: int) -> str:
    return f"gym.rollouts.{token(run, 'run')}.{task_index:d}.{rollout_index:d}"


def rollout_of(subject: str) -> tuple[str, int, int] | None:
    """Return run, task index and rollout index of the subject of an outcome; None if it is that of none."""
    found = _ROLLOUT.fullmatch(subject)
    if found is None or max(int(found[2]), int(found[3])) > MAX_INDEX:
        return None
    return found[1], int(found[2]), int(found[3])


def rollouts_of_run(run: str) -> str:
    return f"gym.rollouts.{token(run, 'run')}.>"


def rollouts_of_task(run: str, task_index: int) -> str:
    return f"gym.rollouts.{token(run, 'run')}.{task_index:d}.*"


def done_of_run(run: str) -> str:
    return f"gym.done.{token(run, 'run')}.>"


def seed(resources: str) -> str:
    return f"gym.seed.{token(resources, 'resources')}"


def stateless(resources: str) -> str:
    return f"gym.resources.{token(resources, 'resources')}"


def session(worker: str, session_id: str) -> str:
    return f"gym.session.{token(worker, 'worker')}.{token(session_id, 'session')}"


def sessions_of_worker(worker: str) -> str:
    return f"gym.session.{token(worker, 'worker')}.*"


def model(name: str) -> str:
    return f"gym.model.{token(name, 'model')}"


def replica(name: str, worker: str) -> str:
    return f"gym.model.{token(name, 'model')}.{token(worker, 'worker')}"


def load(name: str) -> str:
    return f"gym.load.{token(name, 'model')}"


def weights(name: str) -> str:
    return f"gym.weights.{token(name, 'model')}"


def pushed(name: str) -> str:
    return f"gym.pushed.{token(name, 'model')}"


def weights_parts(name: str, push: str) -> str:
    return f"gym.weights.{token(name, 'model')}.{token(push)}"


def all_weights_parts(name: str) -> str:
    return f"gym.weights.{token(name, 'model')}.*.*"


def judge(name: str) -> str:
    return f"gym.judge.{token(name, 'model')}"


def ping(role: str, worker: str) -> str:
    return f"gym.ping.{token(role, 'role')}.{token(worker, 'worker')}"


def cancel(role: str, worker: str) -> str:
    return f"gym.cancel.{token(role, 'role')}.{token(worker, 'worker')}"


def journal(run: str, task_index: int, rollout_index: int) -> str:
    return f"gym.journal.{token(run, 'run')}.{task_index:d}.{rollout_index:d}"


def journals_of_run(run: str) -> str:
    return f"gym.journal.{token(run, 'run')}.>"


def task_parts(run: str, task_index: int, rollout_index: int, digest: str) -> str:
    return f"gym.parts.task.{token(run, 'run')}.{task_index:d}.{rollout_index:d}.{token(digest)}"


def task_parts_of_run(run: str) -> str:
    return f"gym.parts.task.{token(run, 'run')}.>"


def rollout_parts(run: str, task_index: int, rollout_index: int, digest: str) -> str:
    return f"gym.parts.rollout.{token(run, 'run')}.{task_index:d}.{rollout_index:d}.{token(digest)}"


def rollout_parts_of_run(run: str) -> str:
    return f"gym.parts.rollout.{token(run, 'run')}.>"


def call_parts(unique: str) -> str:
    return f"gym.parts.call.{token(unique)}"


def dead_letters(source: str) -> str:
    return f"gym.dead.{token(source)}"


def dead_letters_with_run(source: str, run: str) -> str:
    return f"gym.dead.{token(source)}.{token(run, 'run')}"


def dead_letters_of_run(run: str) -> str:
    return f"gym.dead.*.{token(run, 'run')}"


def run_record(run: str) -> str:
    return f"gym.runs.{token(run, 'run')}"


def cancelled(run: str, task_index: int | None) -> str:
    return f"gym.cancelled.{token(run, 'run')}.{'all' if task_index is None else f'{task_index:d}'}"


def cancelled_of_run(run: str) -> str:
    return f"gym.cancelled.{token(run, 'run')}.*"


def profile(run: str) -> str:
    return f"gym.profiles.{token(run, 'run')}"


_ANSWERED_BY = {
    "model": "model",
    "judge": "model",
    "seed": "resources",
    "resources": "resources",
    "session": "resources",
}


def answered_by(subject: str) -> str:
    """Return the role that answers requests on a subject."""
    first, _, rest = subject.partition(".")
    if first == "gym":
        kind, _, rest = rest.partition(".")
        # Whatever else can be asked below `gym` is stored, and the server acknowledges it.
        return rest.partition(".")[0] if kind == "ping" else _ANSWERED_BY.get(kind, SERVER)
    return SERVER if first == "$JS" else ANYBODY


def reply(asked_by: str, answered_by: str, box: str, name: str) -> str:
    """Return a reply subject. A role may publish to those alone that name it as the one who answers."""
    return f"{INBOX_PREFIX}{asked_by}.{answered_by}.{box}.{name}"


@dataclass(frozen=True)
class Subject:
    """One row of the public contract; `subjects.md` tells the rest (who publishes, who receives, guarantees)."""

    pattern: str
    messages: str  # request → reply
    stream: str = "-"  # "-": core NATS
    group: str = "-"  # queue group or durable consumer


SUBJECTS = (
    Subject("gym.tasks", "Submission", "TASKS", "intake"),
    Subject("gym.tasks.<run>.<agent>", "Task", "TASKS", "agents_<agent>"),
    Subject("gym.urgent.<run>.<agent>", "Task", "TASKS", "urgent_<agent>"),
    Subject("gym.rollouts.<run>.<task>.<rollout>", "Rollout, Failure, Unresolved, Claim", "ROLLOUTS"),
    Subject("gym.done.<run>.<task>.<rollout>", "headers only"),
    Subject("gym.journal.<run>.<task>.<rollout>", "JournalEntry", "JOURNAL"),
    Subject("gym.seed.<resources>", "Seed → Seeded", group="resources"),
    Subject("gym.resources.<resources>", "ToolCall → ToolResult, Verify → Verified", group="resources"),
    Subject(
        "gym.session.<worker>.<session>",
        "ToolCall → ToolResult, Verify → Verified, Seed → Seeded, Close → Closed",
    ),
    Subject("gym.model.<model>", "Generate → Generated", group="model"),
    Subject("gym.model.<model>.<worker>", "Generate → Generated", group="model"),
    Subject("gym.judge.<model>", "Generate → Generated", group="model"),
    Subject("gym.load.<model>", "Load"),
    Subject("gym.weights.<model>", "Weights", "WEIGHTS"),
    Subject("gym.pushed.<model>", "headers only"),
    Subject("gym.weights.<model>.<push>.<n>", "raw bytes", "WEIGHTS"),
    Subject("gym.ping.<role>.<worker>", "Ping → Pong"),
    Subject("gym.cancel.<role>.<worker>", "Cancel"),
    Subject("gym.parts.task.<run>.<task>.<rollout>.<digest>.<n>", "raw bytes", "PARTS"),
    Subject("gym.parts.rollout.<run>.<task>.<rollout>.<digest>.<n>", "raw bytes", "PARTS"),
    Subject("gym.parts.call.<id>.<n>", "raw bytes", "PARTS"),
    Subject("gym.dead.<source>", "DeadLetter", "DEAD_LETTERS"),
    Subject("gym.dead.<source>.<run>", "DeadLetter", "DEAD_LETTERS"),
    Subject("gym.runs.<run>", "Run", "RUNS"),
    Subject("gym.cancelled.<run>.<task>", "Cancellation", "RUNS"),
    Subject("gym.profiles.<run>", "Profile", "RUNS"),
    Subject("$SRV.<verb>[.<name>[.<id>]]", "NATS services JSON"),
    Subject("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASKS.>", "advisory JSON", "ADVISORIES", "janitor"),
)
