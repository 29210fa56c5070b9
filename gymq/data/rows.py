"""Rows of a run: one JSON object for each rollout, with task index, rollout index and agent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec

from gymq.data.jsonl import JsonlError, LineSource, numbered_lines, parse_object
from gymq.errors import GymqError
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import JUDGE_FIELDS, VerifiedRollout
from gymq.protocol.subjects import MAX_INDEX as MAX_INDEX

TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ATTEMPT_INDEX = "_ng_attempt_index"
FAILURE_CLASS = "_ng_failure_class"
FAILURE_STAGE = "_ng_failure_stage"
FAILURE_MESSAGE = "_ng_failure_message"
FAILURE_TERMINAL = "_ng_failure_terminal"
FAILURE_CURABLE = "_ng_failure_curable"
FAILURE_SEQUENCE = "_ng_failure_sequence"
POLICY_VERSION = "policy_version"
AGENT_REF = "agent_ref"
PARAMS = "responses_create_params"
FAILURE_FIELDS = frozenset(
    {FAILURE_CLASS, FAILURE_STAGE, FAILURE_MESSAGE, FAILURE_TERMINAL, FAILURE_CURABLE, FAILURE_SEQUENCE}
)
RESULT_FIELDS = FAILURE_FIELDS | JUDGE_FIELDS | {"response", "reward"}
"""Fields of a line of results in addition to those of its row and verifier, the indices and the attempt."""
ROW_NUMBER = "_rowidx"  # position in the list of a caller; differs between calls
SOURCE = "_ng_source"  # file and line that a row was read from, for messages; differs if the file moves

T = TypeVar("T")

Index = Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]


class RowError(GymqError, ValueError):
    """A row cannot be used. The text names file, line and field."""


class MaterialisedRow(msgspec.Struct, frozen=True, gc=False):
    """The row of one rollout, as its agent gets it."""

    line_number: int  # in the file it was read from, from 1
    task_index: int
    rollout_index: int
    agent: str
    json: bytes  # the row's text in the materialised file, without line end
    attempt: int = 0  # failed attempts made before this one


class RowKey(msgspec.Struct, frozen=True, gc=False):
    """The two indices of an input, result or failure row."""

    task_index: Index = msgspec.field(name=TASK_INDEX)
    rollout_index: Index = msgspec.field(name=ROLLOUT_INDEX)


class _Attempts(msgspec.Struct, frozen=True, gc=False):
    before: Index = msgspec.field(name=ATTEMPT_INDEX, default=0)


def attempt_index(row: bytes, attempt: int) -> int:
    """Return the number of attempts at a rollout before one of its last task: those in earlier tasks are in its row."""
    try:
        return msgspec.json.decode(row, type=_Attempts).before + attempt
    except UNDECODABLE:
        return attempt  # the field of the row was meant otherwise


class AgentRef(msgspec.Struct, frozen=True, gc=False):
    """Names the agent of a row."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


def agent_name(reference: msgspec.Raw) -> str:
    """Return the agent in the field `agent_ref` of a row.

    Raises:
        RowError: it is not an object with a `name`.
    """
    try:
        return msgspec.json.decode(reference, type=AgentRef).name
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RowError(f"`{AGENT_REF}` must be an object with the agent's `name`, not {shown(reference)}") from None


def shown(raw: msgspec.Raw) -> str:
    """Return the first 60 characters of a value's JSON text, for messages."""
    text = bytes(raw).decode("utf-8", "replace")
    return text if len(text) <= 60 else f"{text[:60]}..."


class _Labels(RowKey, frozen=True, gc=False):
    agent_ref: AgentRef


def read_rows(source: LineSource) -> Iterator[MaterialisedRow]:
    """Read a materialised file back. Blank lines are skipped.

    Raises:
        RowError: a line is not a materialised row.
    """
    for number, where, line in numbered_lines(source):
        labels = decode_line(line, _Labels, where)
        text = line.rstrip(b"\r\n")
        yield MaterialisedRow(number, labels.task_index, labels.rollout_index, labels.agent_ref.name, text)


def decode_line(line: bytes, kind: type[T], where: str) -> T:
    """Return the fields of a JSON object that `kind` names.

    Raises:
        RowError: the line is not a JSON object or a field is invalid; the message has `where` and the field.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        is_of_no_run = f"missing required field `{TASK_INDEX}`" in str(error)
        hint = "; the lines of files that a run wrote have it, rows of a data set do not" if is_of_no_run else ""
        raise RowError(f"{where}: {error}{hint}") from None
    except UNDECODABLE:
        raise RowError(f"{where}: {_why_no_object(line)}") from None


def _why_no_object(line: bytes) -> str:
    try:
        parse_object(line)
    except JsonlError as error:
        return str(error)
    return "the line is not valid JSON"


def with_result(row: Mapping[str, Any], response: dict[str, Any], outcome: VerifiedRollout) -> dict[str, Any]:
    """Return the fields of a row with its result; those of the verifier take the place of the row's."""
    return {**row, "response": response, **outcome.verdict, "reward": outcome.reward}


def digest_without_task(row: bytes) -> bytes:
    """Return a digest of a materialised row that does not depend on its task index."""
    fields = {name: value for name, value in parse_object(row).items() if name != TASK_INDEX}
    return hashlib.blake2b(msgspec.json.encode(fields), digest_size=16).digest()


def with_task(line: bytes, task_index: int) -> bytes:
    """Return a row or result with another task index."""
    return msgspec.json.encode({**parse_object(line), TASK_INDEX: task_index})


def digest_of(row: Mapping[str, msgspec.Raw]) -> str:
    """Return a digest of a row that ignores its place in a call, the order of its fields, and its tools.

    A row that is stored has the tools of its environment where the row that was submitted left them out.
    """
    fields: dict[str, Any] = {name: value for name, value in row.items() if name not in (ROW_NUMBER, SOURCE)}
    with suppress(msgspec.ValidationError):  # A value of another type has no tools.
        params = msgspec.json.decode(fields.get(PARAMS, b"{}"), type=dict[str, msgspec.Raw])
        fields[PARAMS] = {name: value for name, value in params.items() if name != "tools"}
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()
