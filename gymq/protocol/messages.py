"""Every message that travels between gymq processes, and the codec for them.

Bodies are msgpack maps; a body that starts with `{` or white space is read as JSON, so a person can publish by
hand. Binary fields (`row`) are then given as text or simply as the JSON value itself. What is stored is compressed
with zstd above 64 KiB. The three encodings are distinguished by their first byte, which no msgpack map shares with JSON
or a zstd frame.

Token ids and log probs are `array.array` objects ('i' int32, 'f' float32, 'd' float64) inside otherwise plain
dicts; on the wire they are little-endian binary, see `gymq.protocol.tokens`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import zstandard

from gymq.errors import GymqError
from gymq.protocol.subjects import MAX_INDEX, RolloutId
from gymq.protocol.tokens import decode_ext, encode_ext, encode_json, link, linked

COMPRESS_ABOVE_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024  # before compression
MAX_TEXT_CHARS = 4000  # of the text of a failure or a dead letter

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_JSON_STARTS = b"{ \t\r\n"

Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]
# What becomes part of a subject is checked where it is read. `\Z`, since `$` lets a line break pass.
_TOKEN = r"[A-Za-z0-9_-]{1,64}"
Token = Annotated[str, msgspec.Meta(pattern=rf"\A{_TOKEN}\Z")]
InstanceName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,256}\Z")]  # see `subjects.instance`
SessionSubject = Annotated[str, msgspec.Meta(pattern=rf"\Agym\.session\.{_TOKEN}\.{_TOKEN}\Z")]
PartsSubject = Annotated[str, msgspec.Meta(pattern=rf"\Agym\.parts(\.{_TOKEN}){{2,5}}\Z")]
PolicyVersion = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # SHA-256
Seconds = Annotated[float, msgspec.Meta(gt=0, le=30 * 24 * 3600)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0.001, le=1000)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # no NaN, no infinity


class BadMessage(GymqError, ValueError):
    """A body that is not the message it should be. The text names the path of the wrong field."""


class FailureClass(StrEnum):
    """Why a rollout, or a call inside one, has no result."""

    INVALID_TASK = "invalid_task"  # the row or its parameters do not fit; trying again cannot help
    MODEL_FAILED = "model_failed"  # the model answered with an error or with nonsense
    VERIFIER_FAILED = "verifier_failed"  # the verifier raised, or answered with nonsense
    JUDGE_FAILED = "judge_failed"  # the verifier's judge model could not be asked
    COMPONENT_FAILED = "component_failed"  # another service the verifier needs could not be asked
    SESSION_LOST = "session_lost"  # the worker that held the session's state is gone
    NO_WORKER = "no_worker"  # no worker serves the subject
    WORKER_LOST = "worker_lost"  # the worker that had the call stopped answering
    SATURATED = "saturated"  # the worker is full; a retry may find room
    DEADLINE_EXCEEDED = "deadline_exceeded"
    AGENT_FAILED = "agent_failed"  # the agent's own code raised
    STALE = "stale"  # the policy moved on too far while the rollout was made
    BAD_REQUEST = "bad_request"  # a body that could not be read
    NOT_STORABLE = "not_storable"  # the result could not be stored
    REDELIVERED_TOO_OFTEN = "redelivered_too_often"  # every delivery of the task ended without an outcome
    CANCELLED = "cancelled"


class Stage(StrEnum):
    """The part of a rollout in which something happened."""

    QUEUE = "queue"
    SEED = "seed"
    MODEL = "model"
    TOOL = "tool"
    VERIFY = "verify"
    STORE = "store"
    AGENT = "agent"


class Message(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of all messages: unknown fields are refused, fields at their default are left out."""


# What a person or a collector submits ---------------------------------------------------------------------------


class Submission(Message, tag="submission.v1", kw_only=True):
    """One row to roll out `num_repeats` times; published to `gym.tasks` by hand or by any program."""

    run: Token
    row: msgspec.Raw
    agent: InstanceName | None = None  # default: the row's `agent_ref.name`
    task_index: Index | None = None  # default: a number the intake gives it
    num_repeats: Count = 1
    timeout_s: Seconds | None = None


class Task(Message, tag="task.v1", kw_only=True):
    """One rollout to make."""

    run: Token
    task_index: Index
    rollout_index: Index
    agent: InstanceName
    row: bytes  # JSON text of the row, exactly as materialised
    timeout_s: Seconds
    num_rollouts: Count | None = None  # rollouts this task has in all, where known
    replaces: Index | None = None  # stream sequence of the failure that this try may replace
    max_staleness: Index | None = None  # updates of the policy that may come after the first call of the rollout

    @property
    def rollout_id(self) -> RolloutId:
        """The rollout that this is the task of."""
        return RolloutId(self.run, self.task_index, self.rollout_index)


# Outcomes: exactly one is stored for each (run, task, rollout) ---------------------------------------------------


class Timing(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    """When one call of a rollout was made, and how long it took."""

    stage: Stage
    started_s: float  # since the attempt began
    duration_s: float


class _Outcome(Message, kw_only=True):
    run: Token
    task_index: Index
    rollout_index: Index
    agent: InstanceName
    row: bytes
    attempt: Index = 0  # tries made before this one
    num_rollouts: Count | None = None
    worker: str = ""  # who made it
    started_at: float = 0.0  # Unix time, seconds
    duration_s: float = 0.0
    policy_versions: list[str] = []  # that answered, in order; empty if the model has no versions
    timings: list[Timing] = []  # of the calls of the last attempt, in order

    @property
    def rollout_id(self) -> RolloutId:
        """The rollout that this is the outcome of."""
        return RolloutId(self.run, self.task_index, self.rollout_index)


class VerifiedRollout(_Outcome, tag="rollout.v1", kw_only=True):
    """A finished rollout: the response of the policy and the verdict on it."""

    response: dict[str, Any]  # Responses object of all turns
    reward: Finite
    verdict: dict[str, Any] = {}  # further members of the verifier's answer


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
    models: list[str] = []  # what answers behind the policy, for table headers
    num_rollouts: Index | None = None
    extended_to: Index | None = None  # rollouts of a task at most, where tasks were given more; outcomes may say less
    note: str = ""  # what people say about it
    tags: list[str] = []
    configuration: bytes = b""  # JSON, without secrets; see `gymq.data.run_configuration`


class Cancellation(Message, tag="cancellation.v1", kw_only=True):
    """A run, or one task of it, that shall stop."""

    run: Token
    task_index: Index | None = None  # None: the whole run
    at: float = 0.0  # Unix time, seconds


class Priority(StrEnum):
    """The class of a run among those that wait for the same agents."""

    URGENT = "urgent"  # gets the next slot, and has a few that no other class may use
    NORMAL = "normal"
    BACKGROUND = "background"  # what the others leave


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
    """An agent instance that some cluster serves, or served."""

    agent: InstanceName
    ack_wait_s: Seconds  # of silence, after which its tasks are delivered again


class Profile(Message, tag="profile.v1", kw_only=True):
    """A run's live statistics; `state` restores the profiler up to and including stream sequence `sequence`."""

    run: Token
    sequence: Index
    all_sequence: Index = 0  # the checkpoints of all runs held all outcomes up to here when this one was stored
    at: float
    snapshot: dict[str, Any]
    state: bytes


# Calls inside a rollout ------------------------------------------------------------------------------------------


class Call(Message, kw_only=True):
    """The fields of every request."""

    rollout: str  # "run/task/rollout", or a name for a call outside any rollout
    timeout_s: Seconds  # seconds left; shrinks as the call travels
    num_lost: Index = 0  # workers that were lost while they had this very call


class Seed(Call, tag="seed.v1", kw_only=True):
    """Open a session. `row` is the JSON text of the row; None opens one that is not seeded yet."""

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


class ToolResult(Message, tag="tool_result.v1", kw_only=True):
    output: str
    status: int = 200  # 404 no such tool, 422 arguments do not fit, 400 session not seeded, 500 the tool failed


class Verify(Call, tag="verify.v1", kw_only=True):
    number: Index
    row: bytes
    response: dict[str, Any]


class Verified(Message, tag="verified.v1", kw_only=True):
    reward: Finite
    verdict: dict[str, Any] = {}


class Close(Call, tag="close.v1", kw_only=True):
    """The session is not needed any more."""


class Closed(Message, tag="closed.v1", kw_only=True):
    pass


class Generate(Call, tag="generate.v1", kw_only=True):
    """One model call: the parameters of an OpenAI Responses request, passed on without loss."""

    params: dict[str, Any]
    session: str  # calls with the same value share a prefix and should reach the same engine


class GenerateNext(Call, tag="generate.v2", kw_only=True):
    """The next model call of a conversation: only what is new in it, for a worker that keeps what came before.

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
    policy_versions: list[str] = []  # that answered: one, or more if the weights changed meanwhile
    state: Token | None = None  # names the conversation up to this reply; only in answer to GenerateNext


class NeedsPrefix(Message, tag="needs_prefix.v1", kw_only=True):
    """The worker does not keep the conversation in the state that was named: all of it has to be sent."""

    worker: Token


# Replicas of a model ----------------------------------------------------------------------------------------------


class Load(Message, tag="load.v1", kw_only=True):
    """The load of a model worker; published about once a second, and when it changes."""

    worker: Token
    running: Index
    waiting: Index
    kv_cache_use: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    kv_cache_tokens: Index = 0  # that its cache holds between calls; 0: it does not say, or keeps none
    num_callers: Index = 0  # processes that asked it lately


class Weights(Message, tag="weights.v1", kw_only=True):
    """The newest weights of a model: at a path that its workers can read, or `parts` messages of the stream WEIGHTS."""

    policy_version: PolicyVersion
    mode: Literal["keep", "wait", "abort"] = "keep"
    in_flight: Literal["continue", "restart", "finish"] = "continue"
    path: str | None = None
    push: Token | None = None  # the parts are `gym.weights.<model>.<push>.<n>`
    parts: Index = 0
    num_bytes: Index = 0
    sha256: Digest | None = None
    before: list[str] = []  # the versions before this one, the newest last
    at: float = 0.0  # Unix time, seconds


class Hold(Message, tag="hold.v1", kw_only=True):
    """An update of a model begins: agents wait with the first calls of rollouts until it is over."""

    for_s: Annotated[float, msgspec.Meta(ge=0, le=60)]  # from now on, unless another message comes; 0: it is over


# The journal of a rollout -----------------------------------------------------------------------------------------


class Effect(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    """One thing an agent had done, and what came of it."""

    number: int  # position among the effects of the attempt
    key: str  # what was asked, in short; a replay must ask the same. No other effect of the attempt has it
    reply: bytes  # the encoded reply
    alone: bool = True  # no other effect was in flight at the same time


class JournalEntry(Message, tag="journal_entry.v2", kw_only=True):
    """Effects in order. Entries of earlier attempts, or of a task that replaces another failure, do not count."""

    attempt: Index
    worker: str
    effects: list[Effect] = []
    session: SessionSubject | None = None  # where the session was moved to
    replaces: Index | None = None  # as in the task
    alone: bool = False  # from here on nothing else worked in the agent's process


# Frames of the call protocol -------------------------------------------------------------------------------------


class Accepted(Message, tag="accepted.v2", kw_only=True):
    """The worker has the call; `worker` of `role` can be pinged and asked to cancel it."""

    role: Token
    worker: Token


class Fail(Message, tag="fail.v1", kw_only=True):
    failure_class: FailureClass
    message: str
    retryable: bool = False
    curable: bool = False


class Cancel(Message, tag="cancel.v2", kw_only=True):
    """Stop the call of this id, see `call_id`."""

    call: str


class Ping(Message, tag="ping.v2", kw_only=True):
    """Does the worker live, and does it still work on the calls of these ids?"""

    calls: list[str]


class Pong(Message, tag="pong.v2", kw_only=True):
    """The ids of those calls that are not (any more) in flight at the worker."""

    gone: list[str] = []


class BlobRef(Message, tag="claim.v1", kw_only=True):
    """Refer to a blob, a body larger than the server allows: `parts` messages `<subject>.<n>` in the stream PARTS."""

    subject: PartsSubject
    parts: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    num_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BODY_BYTES)]
    sha256: Digest


ResourcesRequest = Seed | ToolCall | Verify | Close
T = TypeVar("T")

_ENCODE_ERRORS = (OverflowError, TypeError, ValueError, RecursionError, NotImplementedError)
_encoder = msgspec.msgpack.Encoder(enc_hook=encode_ext)
_json_encoder = msgspec.json.Encoder(enc_hook=encode_json)
# Level 3 makes long rollouts a tenth smaller, and takes twice as long.
_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


def call_id(reply: str) -> str:
    """Return a public name for a call: a client that knew its reply subject could answer it."""
    return hashlib.blake2b(reply.encode(), digest_size=16).hexdigest()


def encode(message: Message) -> bytes:
    """Encode a message as the body to send.

    Raises:
        BadMessage: a value has no msgpack form (an integer beyond 64 bits, half a surrogate pair, a foreign object),
            or the message is too large.
    """
    try:
        message = _self_contained(message)
    except ValueError as error:
        raise BadMessage(f"{type(message).__name__} cannot be encoded: {error}") from None
    try:
        body = _encoder.encode(message)
    except _ENCODE_ERRORS as error:
        where = _invalid_at(message, _encoder.encode)
        raise BadMessage(f"{type(message).__name__} cannot be encoded: {error} - at `{where}`") from None
    if len(body) > MAX_BODY_BYTES:
        raise BadMessage(f"{type(message).__name__} of {len(body)} bytes exceeds the limit of {MAX_BODY_BYTES}")
    return body


def compressed(body: bytes) -> bytes:
    """Return a body as it is stored: compressed if it is large. What is read once, a call, is not worth it."""
    return _compressor.compress(body) if len(body) > COMPRESS_ABOVE_BYTES else body


def _self_contained(message: Message) -> Message:
    """Return a message in which each continued prompt continues one in the same message."""
    items = _items(message)
    if items is None or (kept := linked(items)) is items:
        return message
    if isinstance(message, GenerateNext):
        return msgspec.structs.replace(message, items=kept)
    if isinstance(message, Generate):
        return msgspec.structs.replace(message, params={**message.params, "input": kept})
    assert isinstance(message, VerifiedRollout | Unresolved | Verify)
    return msgspec.structs.replace(message, response={**message.response, "output": kept})


def _output(message: Any) -> object:
    return message.response.get("output")


_ITEMS_OF: dict[type[Message], Callable[[Any], object]] = {
    GenerateNext: lambda message: message.items,
    Generate: lambda message: message.params.get("input"),
    VerifiedRollout: _output,
    Unresolved: _output,
    Verify: _output,
}


def _items(message: Message) -> list[Any] | None:
    """Return the items of a conversation that a message carries from its beginning."""
    items_of = _ITEMS_OF.get(type(message))
    if items_of is None:
        return None
    items = items_of(message)
    return items if isinstance(items, list) else None


def check_encodable(fields: dict[str, Any], path: str) -> None:
    """Check that an author's own fields can travel in a message, and be written to a JSON file in the end.

    Args:
        path: of the fields, for the message.

    Raises:
        BadMessage: a value has no such form; the error names its path.
    """
    for encode_value in (_encoder.encode, _json_encoder.encode):
        try:
            encode_value(fields)
        except _ENCODE_ERRORS as error:
            raise BadMessage(f"{error} - at `{_invalid_at(fields, encode_value, path)}`") from None


def _invalid_at(value: Any, encode_value: Callable[[Any], bytes], path: str = "$") -> str:
    """Return the path of the first value inside `value` that cannot be encoded."""
    children: Any = ()
    if isinstance(value, msgspec.Struct):
        children = ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        children = ((f".{key}" if isinstance(key, str) else f"[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        children = ((f"[{position}]", child) for position, child in enumerate(value))
    for step, child in children:
        try:
            encode_value(child)
        except RecursionError:
            return f"{path}{step}"
        except _ENCODE_ERRORS:
            return _invalid_at(child, encode_value, f"{path}{step}")
    return path


def decoder(*types: type[Message]) -> Decoder:
    """Return a reusable decoder for one message type or a choice of several."""
    return Decoder(*types)


class Decoder:
    """Decodes bodies into one message type, or one of several."""

    def __init__(self, *types: type[Message]) -> None:
        self._decode = msgspec.msgpack.Decoder(reduce(or_, types), ext_hook=decode_ext).decode
        self._binary_fields = {
            message_type.__struct_config__.tag: [
                field.name for field in msgspec.structs.fields(message_type) if field.type in (bytes, bytes | None)
            ]
            for message_type in types
        }

    def __call__(self, body: bytes) -> Any:
        """Decode the body of a message.

        Raises:
            BadMessage: the body is not valid; the error names the path of what is wrong.
        """
        try:
            if body[:4] == _ZSTD_MAGIC:
                body = _decompress(body)
            if body and body[0] in _JSON_STARTS:
                body = self._from_json(body)
            message = self._decode(body)
            items = _items(message)
            if items is not None:
                link(items)
            return message
        except BadMessage:
            raise
        except RecursionError:
            raise BadMessage("nested too deeply") from None
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise BadMessage(str(error)) from None

    def _from_json(self, body: bytes) -> bytes:
        """Convert a JSON body to msgpack."""
        value = msgspec.json.decode(body)
        tag = value.get("type") if isinstance(value, dict) else None
        for name in self._binary_fields.get(tag, ()) if isinstance(tag, str) else ():
            given = value.get(name)
            if given is not None:
                value[name] = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
        try:
            return _encoder.encode(value)
        except OverflowError as error:
            raise BadMessage(f"{error} - at `{_invalid_at(value, _encoder.encode)}`") from None


def _decompress(body: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(body)
        if size < 0 or size > MAX_BODY_BYTES:
            raise BadMessage(f"compressed body of unknown or excessive size ({size} bytes)")
        return _decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadMessage(f"damaged compressed body: {error}") from None
