"""Every subject and queue group; other modules use these names.

The table `SUBJECTS` is the contract that `subjects.md` shows; a test compares the two.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from gymq.errors import GymqError

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONG_NAME = re.compile(r"[A-Za-z0-9_-]{65,256}")
_TASK_KINDS = ("tasks", "urgent")  # of queues, as in their subjects
_ROLLOUT = re.compile(r"gym\.(?:rollouts|done)\.([A-Za-z0-9_-]{1,64})\.([0-9]{1,16})\.([0-9]{1,16})")
_ROLLOUT_ID = re.compile(r"([A-Za-z0-9_-]{1,64})/([0-9]{1,16})/([0-9]{1,16})")

MAX_INDEX = 2**53  # of tasks and rollouts: above it JSON readers that use doubles lose digits

INBOX_PREFIX = "_INBOX_"
SERVER = "server"  # the server itself answers: JetStream, and acknowledgements of what is stored
ANY_ROLE = "any"  # answers where people ask by hand
ALL_ROLLOUTS = "gym.rollouts.>"
ALL_DEAD_LETTERS = "gym.dead.>"
ALL_PARTS = "gym.parts.>"
ALL_DONE = "gym.done.>"  # the outcomes of ALL_ROLLOUTS again, as the stream republishes them
PUSHED_AGAIN = "gym.pushed.$1"  # the weights of WEIGHTS again; $1 stands for the model

SERVICES = "$SRV"  # the services protocol of NATS: $SRV.<verb>[.<name>[.<id>]]
SEEDS = "gym.seed."  # prefixes of subjects
SESSIONS = "gym.session."

MODEL_GROUP = "model"
RESOURCES_GROUP = "resources"


class RolloutId(NamedTuple):
    """Name one rollout of a run; its string form is `run/task/rollout`."""

    run: str
    task_index: int
    rollout_index: int

    def __str__(self) -> str:
        return f"{self.run}/{self.task_index:d}/{self.rollout_index:d}"

    @classmethod
    def parse(cls, text: str) -> RolloutId | None:
        """Return the rollout that a string names; None if it names none, as in a call outside of a run."""
        return cls._of(_ROLLOUT_ID.fullmatch(text))

    @classmethod
    def of_subject(cls, subject: str) -> RolloutId | None:
        """Return the rollout whose outcome, or notification of it, has a subject; None if it is another subject."""
        return cls._of(_ROLLOUT.fullmatch(subject))

    @staticmethod
    def run_of(text: str) -> str:
        """Return the run in the string form of a rollout; all of a string that names none, such as `by-hand`."""
        return text.partition("/")[0]

    @classmethod
    def _of(cls, found: re.Match[str] | None) -> RolloutId | None:
        if found is None or max(int(found[2]), int(found[3])) > MAX_INDEX:
            return None
        return cls(found[1], int(found[2]), int(found[3]))


class BadToken(GymqError, ValueError):
    """A name that cannot be part of a subject."""


def token(value: object, what: str = "name") -> str:
    """Return `value`, if it can be one token of a subject: 1 to 64 of A-Z a-z 0-9 _ -."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        shown = value if isinstance(value, str) and len(value) <= 80 else type(value).__name__
        raise BadToken(f"{what} {shown!r} must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
    return value


def instance(name: object, what: str = "instance") -> str:
    """Return the token of an instance in subjects.

    It is the name itself if that can be a token. A longer name, up to 256 characters, is represented by its beginning
    and the start of its SHA-256.
    """
    if isinstance(name, str) and len(name) > 64 and _LONG_NAME.fullmatch(name):
        return f"{name[:47]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return token(name, what)


def is_token(value: str) -> bool:
    """Return whether a string can be one token of a subject, see `token`."""
    return _TOKEN.fullmatch(value) is not None


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
    if first != "gym":
        return SERVER if first == "$JS" else ANY_ROLE
    kind, _, rest = rest.partition(".")
    # Every other request below `gym` is a message to store, which the server acknowledges.
    return rest.partition(".")[0] if kind == "ping" else _ANSWERED_BY.get(kind, SERVER)


def asked_by(reply: str) -> str:
    """Return the role whose inbox a reply subject belongs to."""
    return reply.removeprefix(INBOX_PREFIX).partition(".")[0]


def reply(asked_by: str, answered_by: str, box: str, name: str) -> str:
    """Return a reply subject. A role may publish only to those that name it in `answered_by`."""
    return f"{INBOX_PREFIX}{asked_by}.{answered_by}.{box}.{name}"


def call_id(reply: str) -> str:
    """Return a public name for a call: a client that knew its reply subject could answer it."""
    return hashlib.blake2b(reply.encode(), digest_size=16).hexdigest()


class TaskQueueName(NamedTuple):
    """The queue of one run's tasks for one agent; each queue has its own subject."""

    kind: str  # "tasks" or "urgent"
    run: str  # as in the subject
    agent: str

    @classmethod
    def of_subject(cls, subject: str) -> TaskQueueName | None:
        """Return the queue of a task's subject; None if it is not the subject of a task."""
        gym, *name = subject.split(".")
        if gym != "gym" or len(name) != 3 or name[0] not in _TASK_KINDS or not is_token(name[2]):
            return None
        return cls(*name)

    @classmethod
    def of_consumer(cls, consumer: str) -> TaskQueueName | None:
        """Return the queue that a consumer is for; None: it is not one of ours."""
        first, at, run = consumer.partition("@")
        kind, _, agent = first.partition("_")
        return cls(kind, run, agent) if at and kind in _TASK_KINDS else None

    @property
    def subject(self) -> str:
        """Return the subject of its tasks."""
        return f"gym.{self.kind}.{self.run}.{self.agent}"

    @property
    def opened(self) -> str:
        """Return the subject on which agents are notified that the queue exists."""
        return f"gym.opened.{self.run}.{self.agent}"

    @property
    def consumer(self) -> str:
        """Return the durable consumer of the queue; a run whose name is not valid is in it as a digest."""
        run = self.run
        if not is_token(run):
            run = f"={hashlib.sha256(run.encode()).hexdigest()[:32]}"
        return f"{self.kind}_{self.agent}@{run}"


def of_worker(group: str, worker: str) -> str:
    """Return the subject on which one worker of a queue group takes the requests of its group."""
    return f"{group}.{token(worker, 'worker')}"


def urgent_entrance(group: str) -> str:
    """Return the subject on which the workers of a queue group take urgent requests, also while they are full."""
    return f"{group}.urgent"


class Each(Enum):
    """Stands for a name in a subject that matches all."""

    EACH = "*"


EACH = Each.EACH
Name = str | int | Each
_NUMBERS = frozenset({"task", "rollout", "n"})
_INSTANCES = frozenset({"agent", "model", "resources"})


@dataclass(frozen=True)
class Subject:
    """One row of the public contract; `subjects.md` has the rest (publishers, receivers, guarantees).

    Its methods raise BadToken for a name that cannot be part of a subject.
    """

    pattern: str
    messages: str  # request → reply
    stream: str = "-"  # "-": core NATS
    group: str = "-"  # queue group or durable consumer

    def of(self, *names: Name) -> str:
        """Return the subject with these names, in the order of the pattern; those that are missing match all."""
        places, beginnings = self._form
        names += (EACH,) * (len(places) - len(names))
        return beginnings[-1].format(*[_part(place, name) for place, name in zip(places, names, strict=True)])

    def begun(self, *names: Name) -> str:
        """Return the beginning of the subject, up to the last of these names."""
        places, beginnings = self._form
        return beginnings[len(names)].format(*map(_part, places, names))

    def below(self, *names: Name) -> str:
        """Return a filter of everything whose subject begins with these names, whatever follows."""
        return f"{self.begun(*names)}.>"

    @cached_property
    def _form(self) -> tuple[list[str], list[str]]:
        """The names in the pattern, and for each number of them its beginning, to be formatted."""
        texts = re.split(r"<(\w+)>", self.pattern)
        before, places = texts[:-1:2], texts[1::2]
        return places, [self.pattern, *("{}".join([*before[:count], ""]) for count in range(1, len(before) + 1))]

    @property
    def wildcard(self) -> str:
        """The pattern with a wildcard for every name in it."""
        return self.of()


def _part(place: str, name: Name) -> str:
    if name is EACH:
        return "*"
    if place in _NUMBERS:
        return f"{name:d}"
    return instance(name, place) if place in _INSTANCES else token(name, place)


def cancelled(run: str, task_index: int | None) -> str:
    """Return the subject of the cancellation of a task; None: of all tasks of the run."""
    return f"gym.cancelled.{token(run, 'run')}.{'all' if task_index is None else f'{task_index:d}'}"


SUBMISSION = Subject("gym.tasks", "Submission", "TASKS", "intake")
TASK = Subject("gym.tasks.<run>.<agent>", "Task", "TASKS", "tasks_<agent>@<run>")
URGENT_TASK = Subject("gym.urgent.<run>.<agent>", "Task", "TASKS", "urgent_<agent>@<run>")
SUBMITTED = Subject("gym.submitted.<run>.<agent>", "subject of the task")
OPENED = Subject("gym.opened.<run>.<agent>", "empty")
ROLLOUT = Subject("gym.rollouts.<run>.<task>.<rollout>", "VerifiedRollout, Failure, Unresolved, BlobRef", "ROLLOUTS")
DONE = Subject("gym.done.<run>.<task>.<rollout>", "headers only")
JOURNAL = Subject("gym.journal.<run>.<task>.<rollout>", "JournalEntry", "JOURNAL")
SEED = Subject("gym.seed.<resources>", "Seed → Seeded", group="resources")
STATELESS = Subject("gym.resources.<resources>", "ToolCall → ToolResult, Verify → Verified", group="resources")
ONE_SEED = Subject("gym.seed.<resources>.<worker>", "Seed → Seeded", group="resources")
ONE_STATELESS = Subject(
    "gym.resources.<resources>.<worker>", "ToolCall → ToolResult, Verify → Verified", group="resources"
)
SESSION = Subject(
    "gym.session.<worker>.<session>", "ToolCall → ToolResult, Verify → Verified, Seed → Seeded, Close → Closed"
)
_MODEL_CALLS = "Generate → Generated, GenerateNext → Generated or NeedsPrefix"
_JUDGE_CALLS = "Generate → Generated, ReadPrompt → PromptRead"
MODEL = Subject("gym.model.<model>", _MODEL_CALLS, group="model")
REPLICA = Subject("gym.model.<model>.<worker>", _MODEL_CALLS, group="model")
JUDGE = Subject("gym.judge.<model>", _JUDGE_CALLS, group="model")
ONE_JUDGE = Subject("gym.judge.<model>.<worker>", _JUDGE_CALLS, group="model")
LOAD = Subject("gym.load.<model>", "Load")
WEIGHTS = Subject("gym.weights.<model>", "Weights", "WEIGHTS")
PUSHED = Subject("gym.pushed.<model>", "headers only")
WEIGHTS_PART = Subject("gym.weights.<model>.<push>.<n>", "raw bytes", "WEIGHTS")
HOLD = Subject("gym.hold.<model>", "Hold")
PING = Subject("gym.ping.<role>.<worker>", "Ping → Pong")
CANCEL = Subject("gym.cancel.<role>.<worker>", "Cancel")
TASK_PART = Subject("gym.parts.task.<run>.<task>.<rollout>.<digest>.<n>", "raw bytes", "PARTS")
ROLLOUT_PART = Subject("gym.parts.rollout.<run>.<task>.<rollout>.<digest>.<n>", "raw bytes", "PARTS")
CALL_PART = Subject("gym.parts.call.<role>.<id>.<n>", "raw bytes", "PARTS")
DEAD_LETTER = Subject("gym.dead.<source>", "DeadLetter", "DEAD_LETTERS")
DEAD_LETTER_OF_RUN = Subject("gym.dead.<source>.<run>", "DeadLetter", "DEAD_LETTERS")
RUN = Subject("gym.runs.<run>", "Run", "RUNS")
CANCELLED = Subject("gym.cancelled.<run>.<task>", "Cancellation", "RUNS")
STEERING = Subject("gym.steering.<run>", "Steering", "RUNS")
AGENT = Subject("gym.agents.<agent>", "ServedAgent", "RUNS")
PROFILE = Subject("gym.profiles.<run>", "Profile", "RUNS")
SERVICE_REQUEST = Subject("$SRV.<verb>[.<name>[.<id>]]", "NATS services JSON")
MAX_DELIVERIES = Subject("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASKS.>", "advisory JSON", "ADVISORIES", "janitor")

ALL_QUEUES = "gym.*.*.*"  # of the stream TASKS: those of TASK and URGENT_TASK

SUBJECTS = tuple(found for found in list(globals().values()) if isinstance(found, Subject))
