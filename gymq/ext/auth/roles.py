"""Roles that connect to the bus, each with exactly the permissions it needs.

Each role is one user of the NATS server. Everything that is not named here is denied; `operator` alone has all
permissions.

The streams are in a separate account without users, and the subjects that roles need are imported from it. JetStream
sends its answers to any reply subject that a request names, without a check whether the requester may publish there. If
the streams shared an account with the roles, a role that may read one message could have it stored as another
worker's rollout.
"""

from __future__ import annotations

from dataclasses import dataclass

from gymq.bus import streams
from gymq.bus.credentials import OPERATOR, SERVICES, TRAINER, VIEWER
from gymq.protocol import subjects
from gymq.protocol.instances import ROLE_OF


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


def _inbox(role: str) -> str:
    return f"{subjects.INBOX_PREFIX}{role}.>"


def _replies(role: str, *to: str) -> tuple[str, ...]:
    """Return the subjects on which requesters of some roles wait for replies of one role.

    The last token is random, so a worker that was not asked cannot answer. Answers of the server have subjects of their
    own, and so do answers to requests that users send by hand. Each role asks all workers for their versions.
    """
    inboxes = [f"{subjects.INBOX_PREFIX}{asked_by}" for asked_by in to]
    by_hand = [f"{inbox}.{subjects.ANY_ROLE}.{depth}" for inbox in inboxes for depth in ("*", "*.*")]
    askers = dict.fromkeys((*to, *ROLE_OF.values()))
    return (*(subjects.reply(asked_by, role, "*", "*") for asked_by in askers), *by_hand)


def _callee(role: str) -> tuple[str, ...]:
    return tuple(each.wildcard.replace("*", role, 1) for each in (subjects.PING, subjects.CANCEL))


def _worker(role: str) -> tuple[str, ...]:
    return (*_callee(role), "$SRV.>")


def _last(stream: str, subject: str) -> str:
    """Return the API subject for reading the last message on a subject."""
    return f"$JS.API.DIRECT.GET.{stream}.{subject}"


def _large_bodies(role: str) -> tuple[str, ...]:
    """Return the subjects for bodies of calls that are stored: any role's to write, those for this role to read."""
    return (CALL_PARTS, _last(streams.PARTS, CALL_PARTS.replace("*", role, 1)))


def _range(stream: str) -> str:
    """Return the API subject for reading any messages of a stream."""
    return f"$JS.API.DIRECT.GET.{stream}"


def _acks(stream: str, consumer: str) -> tuple[str, ...]:
    # Servers with domains, and those that use the second form of these subjects, put two tokens in front.
    return (f"$JS.ACK.{stream}.{consumer}.>", f"$JS.ACK.*.*.{stream}.{consumer}.>")


def _consume(stream: str, consumer: str) -> tuple[str, ...]:
    return (f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", *_acks(stream, consumer))


SUBMISSIONS = subjects.SUBMISSION.pattern
TASKS = subjects.TASK.wildcard
URGENT = subjects.URGENT_TASK.wildcard
ROLLOUTS = subjects.ROLLOUT.wildcard
DONE = str(streams.stream_configs()[streams.ROLLOUTS]["republish"]["dest"])
JOURNAL = subjects.JOURNAL.wildcard
SEED = subjects.SEED.wildcard
ONE_SEED = subjects.ONE_SEED.wildcard
STATELESS = subjects.STATELESS.wildcard
ONE_STATELESS = subjects.ONE_STATELESS.wildcard
SESSION = subjects.SESSION.wildcard
MODEL = subjects.MODEL.wildcard
REPLICA = subjects.REPLICA.wildcard
LOAD = subjects.LOAD.wildcard
WEIGHTS = subjects.WEIGHTS.wildcard
PUSHED = subjects.PUSHED.wildcard
HOLD = subjects.HOLD.wildcard
WEIGHTS_PARTS = subjects.WEIGHTS_PART.wildcard
JUDGE = subjects.JUDGE.wildcard
ONE_JUDGE = subjects.ONE_JUDGE.wildcard
TASK_PARTS = subjects.TASK_PART.wildcard
ROLLOUT_PARTS = subjects.ROLLOUT_PART.wildcard
CALL_PARTS = subjects.CALL_PART.wildcard
RUNS = subjects.RUN.wildcard
CANCELLED = subjects.CANCELLED.wildcard
STEERING = subjects.STEERING.wildcard
SUBMITTED = subjects.SUBMITTED.wildcard
OPENED = subjects.OPENED.wildcard
PROFILES = subjects.PROFILE.wildcard

# What a caller needs beside `_large_bodies`: signs of life.
_JUDGE_CALLS = (JUDGE, ONE_JUDGE, *_callee("model"))
_WHO_IS_THERE = ("$SRV.PING", "$SRV.PING.*")

_READ_OUTCOMES = (
    _range(streams.ROLLOUTS),
    _last(streams.ROLLOUTS, ROLLOUTS),
    _last(streams.PARTS, ROLLOUT_PARTS),
)
_READ_TASK_PARTS = _last(streams.PARTS, TASK_PARTS)

_NEWEST_WEIGHTS = _last(streams.WEIGHTS, WEIGHTS)

_READ = (
    # Outcomes, run records, profiles, dead letters, and what is still queued of a run that is resumed.
    *_READ_OUTCOMES,
    f"$JS.API.STREAM.MSG.GET.{streams.ROLLOUTS}",
    *(_range(streams.RUNS), _last(streams.RUNS, RUNS), _last(streams.RUNS, PROFILES)),
    _range(streams.DEAD_LETTERS),
    *(_range(streams.TASKS), _READ_TASK_PARTS),
    # Status.
    *("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.LIST.*"),
    *(*_WHO_IS_THERE, "$SRV.INFO", "$SRV.STATS", "$SRV.INFO.*", "$SRV.STATS.*"),
    # Whether the versions of a policy are known.
    _NEWEST_WEIGHTS,
)

_CLIENT = (
    *_READ,
    # Submitting.
    *(SUBMISSIONS, TASKS, URGENT, SUBMITTED, RUNS, TASK_PARTS),
    # Cancelling, pausing, sharing.
    *(CANCELLED, STEERING),
    # Asking a judge, for `gymq score`.
    *_JUDGE_CALLS,
)

_AGENT_CALLS = (
    *(MODEL, REPLICA, SEED, ONE_SEED, STATELESS, ONE_STATELESS, SESSION),
    *(*_callee("model"), *_callee("resources")),
)

ROLES: tuple[Role, ...] = (
    Role(
        "client",
        "submits rows, follows and reads runs, cancels them",
        publish=(*_CLIENT, *_large_bodies("client")),
        subscribe=(_inbox("client"), DONE, CANCELLED, STEERING),
    ),
    Role(
        VIEWER,
        "reads runs and rollouts, and what is in flight",
        publish=(*_READ, _range(streams.JOURNAL)),
        subscribe=(_inbox(VIEWER), DONE, CANCELLED, STEERING),
    ),
    Role(
        TRAINER,
        "does what a client does, and pushes new weights",
        publish=(
            *(*_CLIENT, *_large_bodies(TRAINER)),
            *(WEIGHTS, WEIGHTS_PARTS, HOLD),
            f"$JS.API.STREAM.PURGE.{streams.WEIGHTS}",
            f"$JS.API.CONSUMER.INFO.{streams.TASKS}.*",  # which rollouts have begun
        ),
        subscribe=(_inbox(TRAINER), DONE, CANCELLED, STEERING),
    ),
    Role(
        "bridge",
        "does what a client does on behalf of HTTP callers, and calls models and resources for them",
        # The journals: what rollouts in flight have done so far, for the viewer.
        publish=tuple(
            dict.fromkeys(
                (
                    *(*_CLIENT, *_AGENT_CALLS, *_large_bodies("bridge"), _range(streams.JOURNAL)),
                    f"$JS.API.STREAM.MSG.DELETE.{streams.DEAD_LETTERS}",  # those that it requeues
                )
            )
        ),
        subscribe=(_inbox("bridge"), DONE, CANCELLED, STEERING, LOAD),
    ),
    Role(
        "agent",
        "takes tasks, calls models and resources, stores rollouts",
        publish=(
            *(*_AGENT_CALLS, *_large_bodies("agent"), *_WHO_IS_THERE),
            *_consume(streams.TASKS, "*"),
            *(f"$JS.API.CONSUMER.NAMES.{streams.TASKS}", _READ_TASK_PARTS),
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(JOURNAL, _range(streams.JOURNAL), _last(streams.JOURNAL, JOURNAL)),
            *(subjects.DEAD_LETTER.of("agent"), f"{subjects.DEAD_LETTER.of('agent')}.*"),
            _range(streams.RUNS),  # which runs are cancelled, paused and preferred
            _NEWEST_WEIGHTS,  # which policy is the newest
            *_replies("agent", "client", VIEWER, TRAINER, "bridge", OPERATOR),  # that ask who is there
        ),
        subscribe=(_inbox("agent"), OPENED, CANCELLED, STEERING, LOAD, PUSHED, HOLD, *_worker("agent")),
        never_publish=_consume(streams.TASKS, "intake"),
    ),
    Role(
        "model",
        "answers model calls",
        publish=(
            *(*_large_bodies("model"), LOAD, *_WHO_IS_THERE),
            *(_NEWEST_WEIGHTS, _last(streams.WEIGHTS, WEIGHTS_PARTS)),
            *_replies("model", "agent", "resources", "client", VIEWER, TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(
            _inbox("model"),
            LOAD,
            PUSHED,
            f"{MODEL} {subjects.MODEL_GROUP}",
            f"{REPLICA} {subjects.MODEL_GROUP}",
            f"{JUDGE} {subjects.MODEL_GROUP}",
            f"{ONE_JUDGE} {subjects.MODEL_GROUP}",
            *_worker("model"),
        ),
    ),
    Role(
        "resources",
        "keeps sessions, runs tools, verifies; asks judges",
        publish=(
            *(*_JUDGE_CALLS, *_large_bodies("resources"), *_WHO_IS_THERE),
            *_replies("resources", "agent", "client", VIEWER, TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(
            _inbox("resources"),
            f"{SEED} {subjects.RESOURCES_GROUP}",
            f"{ONE_SEED} {subjects.RESOURCES_GROUP}",
            f"{STATELESS} {subjects.RESOURCES_GROUP}",
            f"{ONE_STATELESS} {subjects.RESOURCES_GROUP}",
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
            *(TASKS, SUBMITTED, TASK_PARTS, RUNS, _range(streams.RUNS)),
            *(subjects.DEAD_LETTER.of("intake"), f"{subjects.DEAD_LETTER.of('intake')}.*"),
            # Janitor: tasks that no agent took or finished get an outcome.
            f"$JS.API.STREAM.INFO.{streams.TASKS}",
            *_consume(streams.ADVISORIES, "janitor"),
            *(_range(streams.TASKS), _READ_TASK_PARTS, f"$JS.API.STREAM.MSG.GET.{streams.TASKS}"),
            f"$JS.API.STREAM.MSG.DELETE.{streams.TASKS}",
            *(ROLLOUTS, ROLLOUT_PARTS, *_READ_OUTCOMES),
            *(subjects.DEAD_LETTER.of("janitor"), f"{subjects.DEAD_LETTER.of('janitor')}.*"),
            # Profiler: outcomes in, profiles out.
            *(PROFILES, _last(streams.RUNS, PROFILES)),
            _last(streams.RUNS, RUNS),  # whether the run was extended
            *_WHO_IS_THERE,
            *_replies(SERVICES, "client", VIEWER, TRAINER, "bridge", OPERATOR),
        ),
        subscribe=(_inbox(SERVICES), *_worker(SERVICES)),
    ),
    Role(OPERATOR, "makes and changes streams, removes runs; may do everything", publish=(">",), subscribe=(">",)),
)


def exports() -> list[Export]:
    """Return what the account with the streams offers to the account of the roles."""
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
        *(
            Export(f"$JS.API.CONSUMER.{verb}.>", "one")
            for verb in ("CREATE", "DELETE", "INFO", "LIST", "NAMES", "PAUSE")
        ),
        Export("$JS.API.CONSUMER.MSG.NEXT.>", "many"),
        Export("$JS.API.DIRECT.GET.*", "many"),
        Export("$JS.API.DIRECT.GET.*.>", "one"),
        Export("$JS.ACK.>", "none"),
    ]
