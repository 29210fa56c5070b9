"""Who may say and hear what on the bus: the roles that connect to it, each with exactly the subjects it needs.

Each role is one user of the NATS server. What is not named here is denied. `operator` alone may do everything.

The streams are in an account of their own, which no user is in; what the roles need of it is imported. For JetStream
sends its answers to whatever reply subject a request names, and asks nobody whether the requester may publish there. In
one account with the streams, whoever may read one message could so have it stored as somebody's rollout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gymq import streams, subjects

OPERATOR = "operator"
SERVICES = "services"
TRAINER = "trainer"


@dataclass(frozen=True)
class Role:
    """One user of the server; its inboxes begin with `_INBOX_<name>.`."""

    name: str
    purpose: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]  # "subject group": only as a member of that queue group
    never_publish: tuple[str, ...] = ()  # of what `publish` would allow


@dataclass(frozen=True)
class Export:
    """Subjects of the account with the streams that the account of the roles imports."""

    subject: str
    answers: str  # messages that come back for each one sent: none, one or many; heard: it is only listened to


def _any(pattern: str) -> str:
    """A subject of the contract with every name left open."""
    if pattern not in {row.pattern for row in subjects.SUBJECTS}:
        raise KeyError(f"no subject {pattern}")
    return re.sub(r"<\w+>", "*", pattern)


def _inbox(role: str) -> str:
    return f"{subjects.INBOX_PREFIX}{role}.>"


def _replies(role: str, *to: str) -> tuple[str, ...]:
    """Return where requesters of some roles wait for replies of one role.

    The last token is random, so a worker that was not asked cannot answer. What only the server answers has its own
    place, and so has what people ask by hand.
    """
    inboxes = [f"{subjects.INBOX_PREFIX}{asked_by}" for asked_by in to]
    by_hand = [f"{inbox}.{subjects.ANYBODY}.{depth}" for inbox in inboxes for depth in ("*", "*.*")]
    return (*(subjects.reply(asked_by, role, "*", "*") for asked_by in to), *by_hand)


def _callee(role: str) -> tuple[str, ...]:
    """Return the signs of life that a caller of one role needs."""
    return tuple(_any(f"gym.{kind}.<role>.<worker>").replace("*", role, 1) for kind in ("ping", "cancel"))


def _worker(role: str) -> tuple[str, ...]:
    """Return what every worker of a role hears."""
    return (*_callee(role), "$SRV.>")


def _last(stream: str, subject: str) -> str:
    """Reading the last message on a subject."""
    return f"$JS.API.DIRECT.GET.{stream}.{subject}"


def _range(stream: str) -> str:
    """Reading any messages of a stream."""
    return f"$JS.API.DIRECT.GET.{stream}"


def _acks(stream: str, consumer: str) -> tuple[str, ...]:
    # Servers with domains, and those that use the second form of these subjects, put two tokens in front.
    return (f"$JS.ACK.{stream}.{consumer}.>", f"$JS.ACK.*.*.{stream}.{consumer}.>")


def _consume(stream: str, consumer: str) -> tuple[str, ...]:
    return (f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", *_acks(stream, consumer))


SUBMISSIONS = _any("gym.tasks")
TASKS = _any("gym.tasks.<run>.<agent>")
URGENT = _any("gym.urgent.<run>.<agent>")
ROLLOUTS = _any("gym.rollouts.<run>.<task>.<rollout>")
DONE = str(streams.stream_configs()[streams.ROLLOUTS]["republish"]["dest"])
JOURNAL = _any("gym.journal.<run>.<task>.<rollout>")
SEED = _any("gym.seed.<resources>")
STATELESS = _any("gym.resources.<resources>")
SESSION = _any("gym.session.<worker>.<session>")
MODEL = _any("gym.model.<model>")
REPLICA = _any("gym.model.<model>.<worker>")
LOAD = _any("gym.load.<model>")
WEIGHTS = _any("gym.weights.<model>")
PUSHED = _any("gym.pushed.<model>")
WEIGHTS_PARTS = _any("gym.weights.<model>.<push>.<n>")
JUDGE = _any("gym.judge.<model>")
TASK_PARTS = _any("gym.parts.task.<run>.<task>.<rollout>.<digest>.<n>")
ROLLOUT_PARTS = _any("gym.parts.rollout.<run>.<task>.<rollout>.<digest>.<n>")
CALL_PARTS = _any("gym.parts.call.<id>.<n>")
RUNS = _any("gym.runs.<run>")
CANCELLED = _any("gym.cancelled.<run>.<task>")
PROFILES = _any("gym.profiles.<run>")

# What each side of a call needs: large bodies, signs of life, and whether a full worker lives.
_CALL_BODIES = (CALL_PARTS, _last(streams.PARTS, CALL_PARTS))
_JUDGE_CALLS = (JUDGE, *_CALL_BODIES, *_callee("model"), "$SRV.PING.*")

_READ_OUTCOMES = (
    _range(streams.ROLLOUTS),
    _last(streams.ROLLOUTS, ROLLOUTS),
    _last(streams.PARTS, ROLLOUT_PARTS),
)
_READ_TASK_PARTS = _last(streams.PARTS, TASK_PARTS)
_HAS_AGENT = f"$JS.API.CONSUMER.INFO.{streams.TASKS}.*"

_CLIENT = (
    # Submitting.
    *(SUBMISSIONS, TASKS, URGENT, RUNS, TASK_PARTS),
    # What is still queued of a run that is resumed.
    *(_range(streams.TASKS), _READ_TASK_PARTS),
    # Cancelling.
    CANCELLED,
    # Reading what was made of it.
    *_READ_OUTCOMES,
    f"$JS.API.STREAM.MSG.GET.{streams.ROLLOUTS}",
    *(_range(streams.RUNS), _last(streams.RUNS, RUNS), _last(streams.RUNS, PROFILES)),
    # Dead letters: reading, giving back, dropping.
    _range(streams.DEAD_LETTERS),
    f"$JS.API.STREAM.MSG.DELETE.{streams.DEAD_LETTERS}",
    f"$JS.API.STREAM.PURGE.{streams.DEAD_LETTERS}",
    # Status.
    *("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.LIST.*"),
    *("$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.INFO.*", "$SRV.STATS.*"),
    # Asking a judge, for `gymq score`.
    *_JUDGE_CALLS,
)

_AGENT_CALLS = (
    *(MODEL, REPLICA, SEED, STATELESS, SESSION, *_CALL_BODIES),
    *(*_callee("model"), *_callee("resources"), "$SRV.PING.*"),
)

_NEWEST_WEIGHTS = _last(streams.WEIGHTS, WEIGHTS)

ROLES: tuple[Role, ...] = (
    Role(
        "client",
        "submits rows, follows and reads runs, cancels them, gives dead letters back",
        publish=_CLIENT,
        subscribe=(_inbox("client"), DONE, CANCELLED),
    ),
    Role(
        TRAINER,
        "does what a client does, and gives models new weights",
        publish=(
            *_CLIENT,
            *(WEIGHTS, WEIGHTS_PARTS, _NEWEST_WEIGHTS),
            f"$JS.API.STREAM.PURGE.{streams.WEIGHTS}",
        ),
        subscribe=(_inbox(TRAINER), DONE, CANCELLED),
    ),
    Role(
        "bridge",
        "does over HTTP what a client does, and calls models and resources for those who ask there",
        # The journals: what rollouts have done so far, for its page.
        publish=tuple(dict.fromkeys((*_CLIENT, *_AGENT_CALLS, _range(streams.JOURNAL)))),
        subscribe=(_inbox("bridge"), DONE, CANCELLED, LOAD),
    ),
    Role(
        "agent",
        "takes tasks, calls models and resources, stores rollouts",
        publish=(
            *_AGENT_CALLS,
            *_consume(streams.TASKS, "*"),
            *(_HAS_AGENT, _READ_TASK_PARTS),
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(JOURNAL, _range(streams.JOURNAL), _last(streams.JOURNAL, JOURNAL)),
            *(subjects.dead_letters("agent"), f"{subjects.dead_letters('agent')}.*"),
            _range(streams.RUNS),  # which runs are cancelled
            _NEWEST_WEIGHTS,  # which policy is the newest
            *_replies("agent", "client", TRAINER, "bridge", OPERATOR),  # that ask who is there
        ),
        subscribe=(_inbox("agent"), CANCELLED, LOAD, PUSHED, *_worker("agent")),
        never_publish=_consume(streams.TASKS, "intake"),
    ),
    Role(
        "model",
        "answers model calls",
        publish=(
            *(*_CALL_BODIES, LOAD),
            *(_NEWEST_WEIGHTS, _last(streams.WEIGHTS, WEIGHTS_PARTS)),
            *_replies("model", "agent", "resources", "client", TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(
            _inbox("model"),
            LOAD,
            PUSHED,
            f"{MODEL} {subjects.MODEL_GROUP}",
            f"{REPLICA} {subjects.MODEL_GROUP}",
            f"{JUDGE} {subjects.MODEL_GROUP}",
            *_worker("model"),
        ),
    ),
    Role(
        "resources",
        "keeps sessions, runs tools, verifies; asks judges",
        publish=(*_JUDGE_CALLS, *_replies("resources", "agent", "client", TRAINER, "bridge", OPERATOR)),
        subscribe=(
            _inbox("resources"),
            f"{SEED} {subjects.RESOURCES_GROUP}",
            f"{STATELESS} {subjects.RESOURCES_GROUP}",
            SESSION,
            *_worker("resources"),
        ),
    ),
    Role(
        SERVICES,
        "intake, janitor and profiler",
        publish=(
            # Intake: submissions in, tasks out.
            *_consume(streams.TASKS, "intake"),
            *(TASKS, RUNS, _HAS_AGENT),
            *(subjects.dead_letters("intake"), f"{subjects.dead_letters('intake')}.*"),
            # Janitor: tasks that no agent took or finished get an outcome.
            f"$JS.API.STREAM.INFO.{streams.TASKS}",
            *_consume(streams.ADVISORIES, "janitor"),
            *(_range(streams.TASKS), _READ_TASK_PARTS, f"$JS.API.STREAM.MSG.GET.{streams.TASKS}"),
            f"$JS.API.STREAM.MSG.DELETE.{streams.TASKS}",
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(subjects.dead_letters("janitor"), f"{subjects.dead_letters('janitor')}.*"),
            # Profiler: outcomes in, profiles out.
            *(PROFILES, _last(streams.RUNS, PROFILES), f"$JS.API.STREAM.MSG.GET.{streams.RUNS}"),
            *_replies(SERVICES, "client", TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(_inbox(SERVICES), *_worker(SERVICES)),
    ),
    Role(OPERATOR, "makes and changes streams, removes runs; may do everything", publish=(">",), subscribe=(">",)),
)


def role(name: str) -> Role:
    """The role of a name.

    Raises:
        KeyError: there is none.
    """
    return {role.name: role for role in ROLES}[name]


def exports() -> list[Export]:
    """What the account with the streams offers to the account of the roles."""
    stored = [
        subject
        for config in streams.stream_configs().values()
        for subject in config["subjects"]
        if not subject.startswith("$JS.")  # the server's own messages, which stay in the account
    ]
    return [
        *(Export(subject, "one") for subject in stored),
        Export(DONE, "heard"),
        Export(PUSHED, "heard"),
        Export("$JS.API.INFO", "one"),
        Export("$JS.API.STREAM.>", "one"),
        *(Export(f"$JS.API.CONSUMER.{verb}.>", "one") for verb in ("CREATE", "DELETE", "INFO", "LIST", "NAMES")),
        Export("$JS.API.CONSUMER.MSG.NEXT.>", "many"),
        Export("$JS.API.DIRECT.GET.*", "many"),
        Export("$JS.API.DIRECT.GET.*.>", "one"),
        Export("$JS.ACK.>", "none"),
    ]
