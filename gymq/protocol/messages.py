"""Every message between gymq processes; `gymq.protocol.codec` encodes and decodes them.

Token ids and log probs are `array.array` objects ('i' int32, 'f' float32, 'd' float64) inside otherwise plain dicts.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from gymq.errors import GymqError
from gymq.protocol.subjects import MAX_INDEX, RolloutId

MAX_BODY_BYTES = 256 * 1024 * 1024  # before compression
MAX_TEXT_CHARS = 4000  # of the text of a failure or a dead letter

Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]
# Parts of subjects are checked when a message is decoded. `\Z`, because `$` allows a line break at the end.
_TOKEN = r"[A-Za-z0-9_-]{1,64}"
Token = Annotated[str, msgspec.Meta(pattern=rf"\A{_TOKEN}\Z")]
InstanceName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,256}\Z")]  # see `subjects.instance`
SessionSubject = Annotated[str, msgspec.Meta(pattern=rf"\Agym\.session\.{_TOKEN}\.{_TOKEN}\Z")]
PartsSubject = Annotated[str, msgspec.Meta(pattern=rf"\Agym\.parts(\.{_TOKEN}){{2,5}}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # SHA-256
Seconds = Annotated[float, msgspec.Meta(gt=0, le=30 * 24 * 3600)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0.001, le=1000)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # no NaN, no infinity


class BadMessage(GymqError, ValueError):
    """A body that is not a valid message. The text names the path of the wrong field."""


class FailureClass(StrEnum):
    """Why a rollout, or a call inside one, has no result."""

    INVALID_TASK = "invalid_task"  # the row or its parameters do not fit; a retry cannot help
    MODEL_FAILED = "model_failed"  # the model returned an error or an invalid reply
    VERIFIER_FAILED = "verifier_failed"  # the verifier raised, or returned an invalid verdict
    JUDGE_FAILED = "judge_failed"  # the verifier's judge model could not be asked
    COMPONENT_FAILED = "component_failed"  # another service the verifier needs could not be asked
    SESSION_LOST = "session_lost"  # the worker that held the session's state is gone
    NO_WORKER = "no_worker"  # no worker serves the subject
    WORKER_LOST = "worker_lost"  # the worker that had the call stopped answering
    SATURATED = "saturated"  # the worker is full; a retry may find room
    DEADLINE_EXCEEDED = "deadline_exceeded"
    AGENT_FAILED = "agent_failed"  # the agent's own code raised
    STALE = "stale"  # the policy was updated too often during the rollout
    BAD_REQUEST = "bad_request"  # a body that could not be read
    NOT_STORABLE = "not_storable"  # the result could not be stored
    REDELIVERED_TOO_OFTEN = "redelivered_too_often"  # every delivery of the task ended without an outcome
    CANCELLED = "cancelled"

    @classmethod
    def _missing_(cls, value: object) -> FailureClass | None:
        """Read a class of a later release as one that may be tried again."""
        return cls.COMPONENT_FAILED if isinstance(value, str) else None


class Stage(StrEnum):
    """The part of a rollout in which something happened."""

    QUEUE = "queue"
    SEED = "seed"
    MODEL = "model"
    TOOL = "tool"
    VERIFY = "verify"
    STORE = "store"
    AGENT = "agent"


class Message(msgspec.Struct, tag_field="type", omit_defaults=True, kw_only=True):
    """Base of all messages: fields at their default are left out; unknown ones, of a later version, are skipped."""


class Submission(Message, tag="submission.v1", kw_only=True):
    """One row to roll out `num_repeats` times; published to `gym.tasks` by hand or by any program."""

    run: Token
    row: msgspec.Raw
    agent: InstanceName | None = None  # default: the row's `agent_ref.name`
    task_index: Index | None = None  # default: a number the intake gives it
    num_repeats: Count = 1
    timeout_s: Seconds | None = None


class _OfRollout(Message, kw_only=True):
    run: Token
    task_index: Index
    rollout_index: Index

    @property
    def rollout_id(self) -> RolloutId:
        """The rollout that this belongs to."""
        return RolloutId(self.run, self.task_index, self.rollout_index)


class Task(_OfRollout, tag="task.v1", kw_only=True):
    """One rollout to make."""

    agent: InstanceName
    row: bytes  # JSON text of the row, exactly as materialised
    timeout_s: Seconds
    num_rollouts: Count | None = None  # rollouts this task has in all, where known
    replaces: Index | None = None  # stream sequence of the failure that this try may replace
    max_staleness: Index | None = None  # updates of the policy that may come after the first call of the rollout
    resumed: bool = False  # of a run that was interrupted: an earlier task of the rollout may have left a journal


class Timing(msgspec.Struct, array_like=True):
    """When one call of a rollout was made, and how long it took."""

    stage: Stage
    started_s: float  # since the attempt began
    duration_s: float


class _Outcome(_OfRollout, kw_only=True):
    agent: InstanceName
    row: bytes
    attempt: Index = 0  # tries made before this one
    num_rollouts: Count | None = None
    worker: str = ""  # who made it
    started_at: float = 0.0  # Unix time, seconds
    duration_s: float = 0.0
    policy_versions: list[str] = []  # that answered, in order; empty if the model has no versions
    timings: list[Timing] = []  # of the calls of the last attempt, in order


class VerifiedRollout(_Outcome, tag="rollout.v1", kw_only=True):
    """A finished rollout: the response of the policy and the verdict on it."""

    response: dict[str, Any]  # Responses object of all turns
    reward: Finite
    verdict: dict[str, Any] = {}  # further fields of the verifier's answer


class Failure(_Outcome, tag="failure.v1", kw_only=True):
    """A rollout that ended without a response."""

    failure_class: FailureClass
    stage: Stage
    message: str
    retryable: bool = False
    curable: bool = False  # the set-up is wrong, such as a key: the next start of the collection tries it again


class Unresolved(_Outcome, tag="unresolved.v1", kw_only=True):
    """A rollout whose response is there but which could not be verified; it can be scored again later."""

    response: dict[str, Any]
    failure_class: FailureClass
    message: str
    retryable: bool = True
    curable: bool = False  # as in Failure
    stage: Stage = Stage.VERIFY


Outcome = VerifiedRollout | Failure | Unresolved


class DeadLetter(Message, tag="dead_letter.v1", kw_only=True):
    """A message that could not be processed, kept for a person to inspect."""

    subject: str  # where it was published
    reason: str  # one sentence
    body: bytes
    at: float  # Unix time, seconds
    rollout: str = ""  # "run/task/rollout", if it is a rollout that failed
    failure_class: FailureClass | None = None
    stage: Stage | None = None


class Run(Message, tag="run.v1", kw_only=True):
    """The facts of a run that are known from its start."""

    run: Token
    created_at: float
    fingerprint: str = ""  # of the input and the configuration
    models: list[str] = []  # names of the models behind the policy, for table headers
    num_rollouts: Index | None = None
    extended_to: Index | None = None  # if the run was extended: the most rollouts of a task; older outcomes have fewer
    note: str = ""  # written by a person
    tags: list[str] = []
    configuration: bytes = b""  # JSON, without secrets; see `gymq.data.run_configuration`


class Cancellation(Message, tag="cancellation.v1", kw_only=True):
    """Stop a run, or one task of it."""

    run: Token
    task_index: Index | None = None  # None: the whole run
    at: float = 0.0  # Unix time, seconds


class Priority(StrEnum):
    """The priority class of a run among the runs that use the same agents."""

    URGENT = "urgent"  # gets the next slot, and has a few that no other class may use
    NORMAL = "normal"
    BACKGROUND = "background"  # gets the slots that the others leave


class Steering(Message, tag="steering.v1", kw_only=True):
    """How the tasks of a run are taken from the queue; it may change while the run is in progress."""

    run: Token
    number: Count = 1  # grows with each change
    share: Share = 1.0  # of the workers, relative to other runs of the same class
    priority: Priority | None = None  # None: as the tasks were submitted
    paused: bool = False
    max_in_flight: Count | None = None  # tasks of one agent; None: as many as there are slots
    at: float = 0.0  # Unix time of the last change, seconds


class ServedAgent(Message, tag="served_agent.v1", kw_only=True):
    """An agent instance that a cluster serves or served."""

    agent: InstanceName
    ack_wait_s: Seconds  # of silence, after which its tasks are delivered again


class Profile(Message, tag="profile.v1", kw_only=True):
    """A run's live statistics; `state` restores the profiler up to and including stream sequence `sequence`."""

    run: Token
    sequence: Index
    all_sequence: Index = 0  # the checkpoints of all runs held all outcomes up to here when this one was stored
    at: float  # Unix time, seconds, of the end of its last rollout; of the checkpoint if that is unknown
    snapshot: dict[str, Any]
    state: bytes


class Call(Message, kw_only=True):
    """The fields of every request."""

    rollout: str  # "run/task/rollout", or a name for a call outside any rollout
    timeout_s: Seconds  # seconds left; shrinks as the call travels
    num_lost: Index = 0  # workers that were lost while they had this very call
    priority: Priority = Priority.NORMAL  # of the run, where calls wait for the same worker
    share: Share = 1.0  # of the worker, relative to other runs of the same class


class Seed(Call, tag="seed.v1", kw_only=True):
    """Open a session. `row` is the JSON text of the row; None: the session is seeded later."""

    row: bytes | None
    with_tools: bool = False  # whether the reply carries the tools' schemas


class Seeded(Message, tag="seeded.v1", kw_only=True):
    """`session` is the subject for all further calls; None: the worker keeps no state and needs no session.

    `replayable`: should this worker be lost, the same calls bring another worker's session to the same state.
    """

    session: SessionSubject | None
    replayable: bool = False
    tools: list[dict[str, Any]] | None = None  # offered to a row that lists none; None: not asked for
    more_tools: list[dict[str, Any]] = []  # offered to a row that names them


class ToolCall(Call, tag="tool_call.v1", kw_only=True):
    number: Index  # which call of the session; a repeated number is answered from memory
    name: str
    arguments: str  # JSON text, as the model wrote it
    offered: bool = True  # False: a model calls a tool that its row does not name


class ToolResult(Message, tag="tool_result.v1", kw_only=True):
    output: str
    status: int = 200  # 404 no such tool, 422 arguments do not fit, 400 session not seeded, 500 the tool failed


class Verify(Call, tag="verify.v1", kw_only=True):
    number: Index
    row: bytes
    response: dict[str, Any]


class Verified(Message, tag="verified.v1", kw_only=True):
    reward: Finite
    verdict: dict[str, Any] = {}  # of the verifier, with `JUDGE_FIELDS` if it asked a judge


# Fields of a verdict that are recorded where the verifier asked a judge.
JUDGE_CALLS, JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS = "judge_calls", "judge_input_tokens", "judge_output_tokens"
JUDGE_FIELDS = frozenset({JUDGE_CALLS, JUDGE_INPUT_TOKENS, JUDGE_OUTPUT_TOKENS})


class Close(Call, tag="close.v1", kw_only=True):
    """Close a session."""


class Closed(Message, tag="closed.v1", kw_only=True):
    pass


class Generate(Call, tag="generate.v1", kw_only=True):
    """One model call: the parameters of an OpenAI Responses request, passed on without loss."""

    params: dict[str, Any]
    session: str  # calls with the same value share a prefix and should reach the same engine


class GenerateNext(Call, tag="generate.v2", kw_only=True):
    """The next model call of a conversation: only its new items, for a worker that keeps the earlier ones.

    `after` is the `state` of the reply that the items follow; None: the items are the whole conversation.
    """

    params: dict[str, Any]  # as in Generate, without `input`
    items: list[dict[str, Any]]  # of the conversation, those after the first `num_items`
    session: str  # names the conversation
    after: Token | None = None
    num_items: Index = 0  # that the worker keeps, in that state


class Generated(Message, tag="generated.v1", kw_only=True):
    response: dict[str, Any]
    worker: str = ""  # that answered
    policy_versions: list[str] = []  # that answered: more than one if the weights changed during the call
    state: Token | None = None  # names the conversation up to this reply; only in answer to GenerateNext


class ReadPrompt(Call, tag="read_prompt.v1", kw_only=True):
    """Have a model's engine read a prompt that it is not to continue: tokens, or a chat with messages and tools."""

    prompt: list[int] | dict[str, Any]
    num_log_probs: int = 0  # of the likeliest tokens at each place; -1: all
    first: Index = 0  # place of the first token whose log probs are returned


class PromptRead(Message, tag="prompt_read.v1", kw_only=True):
    token_ids: list[int] = []  # that the engine makes of a chat
    log_probs: list[dict[str, float]] = []  # by id, of each token of a prompt in tokens: the model's own ones


class NeedsPrefix(Message, tag="needs_prefix.v1", kw_only=True):
    """The worker does not have the named state of the conversation; send all items."""

    worker: Token


class Accepted(Message, tag="accepted.v2", kw_only=True):
    """The worker has the call; pings and cancellations go to `worker` of `role`."""

    role: Token
    worker: Token


class Fail(Message, tag="fail.v1", kw_only=True):
    failure_class: FailureClass
    message: str
    retryable: bool = False
    curable: bool = False


class Cancel(Message, tag="cancel.v2", kw_only=True):
    """Stop the call of this id, see `subjects.call_id`."""

    call: str


class Ping(Message, tag="ping.v2", kw_only=True):
    """Ask a worker whether it is alive and which of these calls are in flight."""

    calls: list[str]


class Pong(Message, tag="pong.v2", kw_only=True):
    """The ids of the calls that are not in flight at the worker."""

    gone: list[str] = []


class BlobRef(Message, tag="claim.v1", kw_only=True):
    """Refer to a blob, a body larger than the server allows: `parts` messages `<subject>.<n>` in the stream PARTS.

    In place of a request it has those fields by which calls wait.
    """

    subject: PartsSubject
    parts: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    num_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BODY_BYTES)]
    sha256: Digest
    rollout: str = ""
    priority: Priority = Priority.NORMAL
    share: Share = 1.0


ResourcesRequest = Seed | ToolCall | Verify | Close
