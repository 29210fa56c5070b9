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


def _replies_to(*roles: str) -> tuple[str, ...]:
    """Where requesters of some roles wait for replies.

    The last token is random, so who was not asked cannot answer. Where tasks are delivered is a token deeper.
    """
    depths = ("*", "*.*")
    return tuple(f"{subjects.INBOX_PREFIX}{role}.{depth}" for role in roles for depth in depths)


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
PING = _any("gym.ping.<worker>")
CANCEL_CALL = _any("gym.cancel.<worker>")
ROLLOUT_PARTS = _any("gym.parts.rollout.<run>.<task>.<rollout>.<digest>.<n>")
CALL_PARTS = _any("gym.parts.call.<id>.<n>")
RUNS = _any("gym.runs.<run>")
CANCELLED = _any("gym.cancelled.<run>.<task>")
PROFILES = _any("gym.profiles.<run>")

# What each side of a call needs: large bodies, signs of life, and whether a full worker lives.
_CALL_BODIES = (CALL_PARTS, _last(streams.PARTS, CALL_PARTS))
_CALLER = (*_CALL_BODIES, PING, CANCEL_CALL, "$SRV.PING.*")
_WORKER = (PING, CANCEL_CALL, "$SRV.>")

_READ_OUTCOMES = (
    _range(streams.ROLLOUTS),
    _last(streams.ROLLOUTS, ROLLOUTS),
    _last(streams.PARTS, ROLLOUT_PARTS),
)
_HAS_AGENT = f"$JS.API.CONSUMER.INFO.{streams.TASKS}.*"

_CLIENT = (
    # Submitting.
    *(SUBMISSIONS, TASKS, URGENT, RUNS, ROLLOUT_PARTS),
    # What is still queued of a run that is gone on with.
    _range(streams.TASKS),
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
    *(JUDGE, *_CALLER),
)

_AGENT_CALLS = (MODEL, REPLICA, SEED, STATELESS, SESSION, *_CALLER)

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
            _HAS_AGENT,
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(JOURNAL, _range(streams.JOURNAL), _last(streams.JOURNAL, JOURNAL)),
            *(subjects.dead_letters("agent"), f"{subjects.dead_letters('agent')}.*"),
            _range(streams.RUNS),  # which runs are cancelled
            _NEWEST_WEIGHTS,  # which policy is the newest
            *_replies_to("client", TRAINER, "bridge", OPERATOR),  # that ask who is there
        ),
        subscribe=(_inbox("agent"), CANCELLED, LOAD, PUSHED, *_WORKER),
        never_publish=_consume(streams.TASKS, "intake"),
    ),
    Role(
        "model",
        "answers model calls",
        publish=(
            *(*_CALL_BODIES, LOAD),
            *(_NEWEST_WEIGHTS, _last(streams.WEIGHTS, WEIGHTS_PARTS)),
            *_replies_to("agent", "resources", "client", TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(
            _inbox("model"),
            LOAD,
            PUSHED,
            f"{MODEL} {subjects.MODEL_GROUP}",
            f"{REPLICA} {subjects.MODEL_GROUP}",
            f"{JUDGE} {subjects.MODEL_GROUP}",
            *_WORKER,
        ),
    ),
    Role(
        "resources",
        "keeps sessions, runs tools, verifies; asks judges",
        publish=(JUDGE, *_CALLER, *_replies_to("agent", "client", TRAINER, "bridge", OPERATOR)),
        subscribe=(
            _inbox("resources"),
            f"{SEED} {subjects.RESOURCES_GROUP}",
            f"{STATELESS} {subjects.RESOURCES_GROUP}",
            SESSION,
            *_WORKER,
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
            # Janitor: tasks that nobody finished get an outcome.
            *_consume(streams.ADVISORIES, "janitor"),
            *(_range(streams.TASKS), f"$JS.API.STREAM.MSG.GET.{streams.TASKS}"),
            f"$JS.API.STREAM.MSG.DELETE.{streams.TASKS}",
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(subjects.dead_letters("janitor"), f"{subjects.dead_letters('janitor')}.*"),
            # Profiler: outcomes in, profiles out.
            *(PROFILES, _last(streams.RUNS, PROFILES), f"$JS.API.STREAM.MSG.GET.{streams.RUNS}"),
            *_replies_to("client", TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(_inbox(SERVICES), *_WORKER),
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
