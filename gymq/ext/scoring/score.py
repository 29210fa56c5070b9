"""Scoring: from the rollouts in a file to the same rollouts with new verdicts, without asking any policy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from gymq.data.disk_index import TemporaryDatabase
from gymq.data.jsonl import JsonlError, JsonlFile, LineSource, atomic_write, numbered_lines, parse_object
from gymq.data.rows import (
    AGENT_REF,
    FAILURE_CLASS,
    RESULT_FIELDS,
    TASK_INDEX,
    AgentRef,
    RowKey,
    decode_line,
)
from gymq.data.run_files import RunFiles, failure_row, output_row
from gymq.defaults import PASS_THRESHOLD, SCORE_CONCURRENCY
from gymq.errors import UsageError
from gymq.ext.rollout_files.files import rollout_lines
from gymq.ext.shared.local_verifiers import Verifiers, verify_again
from gymq.failures import InvalidTask, RolloutError
from gymq.protocol import token_forms
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.messages import FailureClass, Stage, Unresolved, Verified, VerifiedRollout


@dataclass(frozen=True)
class ScoreOptions:
    """The choice of rollouts to verify again, and how."""

    rollouts: Path
    output: Path
    inputs: Path | None = None  # rows of the tasks; default: the members of the rollouts themselves
    concurrency: int = SCORE_CONCURRENCY
    limit: int | None = None  # so many rollouts from the start of the file
    failed_only: bool = False  # take over the rollouts that passed as they are


class ScoreSummary(msgspec.Struct):
    """The counts of a scoring."""

    total: int = 0  # rollouts read
    verified: int = 0  # those that have a new verdict
    raised: int = 0
    lowered: int = 0
    new: int = 0  # that had no reward before
    kept: int = 0  # taken over as they were
    without_response: int = 0  # nothing to verify, or nothing that can be read
    failures: dict[str, int] = {}  # no verdict this time, by failure class
    messages: dict[str, str] = {}  # the first of each failure class
    changes: dict[tuple[float, float], int] = {}  # rewards before and now, where they differ
    sum_before: float = 0.0  # over the rollouts that had a reward and have one again
    sum_now: float = 0.0

    @property
    def compared(self) -> int:
        return self.verified - self.new

    @property
    def changed(self) -> int:
        return self.raised + self.lowered


class _Head(RowKey, frozen=True, gc=False):
    agent_ref: AgentRef | None = None
    reward: float | None = None


class _Entry(msgspec.Struct, frozen=True):
    """One rollout to verify."""

    line: bytes
    head: _Head
    agent: str
    row: bytes
    response: msgspec.Raw | None


class _Rows(TemporaryDatabase):
    """The rows of the tasks by their keys, on disk."""

    def __init__(self) -> None:
        super().__init__("rows (task INTEGER, rollout INTEGER, text BLOB, PRIMARY KEY (task, rollout)) WITHOUT ROWID")

    def add(self, key: RowKey, text: bytes) -> None:
        self._execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (key.task_index, key.rollout_index, text))

    def find(self, key: RowKey) -> bytes | None:
        row = self._row("SELECT text FROM rows WHERE task = ? AND rollout = ?", key.task_index, key.rollout_index)
        return None if row is None else bytes(row[0])


async def score(
    options: ScoreOptions, verifiers: Verifiers, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> ScoreSummary:
    """Verify the responses of a file again; the new rollouts are written beside those that still have no verdict.

    Args:
        on_progress: called with the number of rollouts done and of all.

    Raises:
        UsageError, RowError, JsonlError, ConfigError, WorkerNotFound, OptionsError: nothing was written.
    """
    files = RunFiles(options.output)
    with _Rows() as rows:
        scoring = _Scoring(options, verifiers, rows)
        total = await scoring.prepare()
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(files.output) as results, atomic_write(files.failures) as failures:
            async for line, is_result in scoring.lines():
                (results if is_result else failures).write(line + b"\n")
                on_progress(scoring.summary.total, total)
    return scoring.summary


class _Scoring:
    def __init__(self, options: ScoreOptions, verifiers: Verifiers, rows: _Rows) -> None:
        self.summary = ScoreSummary()
        self._options = options
        self._verifiers = verifiers
        self._rows = rows

    async def prepare(self) -> int:
        """Check every line and start every worker that will be needed; how many rollouts there are."""
        if self._options.inputs is not None:
            _read_inputs(self._rows, JsonlFile(self._options.inputs))
        total = 0
        agents: dict[str, str] = {}
        for where, line in self._read():
            total += 1
            entry = self._entry(where, line)
            if entry.response is not None:
                agents.setdefault(entry.agent, where)
        if not agents:
            raise UsageError(f"{self._options.rollouts} has no rollouts with a `response` that could be verified")
        for agent, where in agents.items():
            try:
                await self._verifiers.prepare(agent)
            except UsageError as error:
                raise UsageError(f"{where}: {error}") from None
        return total

    async def lines(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield the new lines in the order of the old ones, and whether each is a result."""
        under_way: deque[asyncio.Task[tuple[bytes, bool]]] = deque()
        try:
            for where, line in self._read():
                if len(under_way) >= self._options.concurrency:
                    yield await under_way.popleft()
                under_way.append(asyncio.create_task(self._renewed(self._entry(where, line))))
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()

    def _read(self) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of the rollouts, each with its place for messages."""
        lines = numbered_lines(rollout_lines(self._options.rollouts))
        rollouts = ((where, line) for _, where, line in lines if not _is_refused_row(line))
        for where, line in islice(rollouts, self._options.limit):
            yield where, line.rstrip(b"\r\n")

    def _entry(self, where: str, line: bytes) -> _Entry:
        head = decode_line(line, _Head, where)
        agent = head.agent_ref.name if head.agent_ref is not None else self._verifiers.only_agent
        if agent is None:
            raise UsageError(f"{where}: the rollout names no agent: it needs `{AGENT_REF}` with a `name`")
        fields = parse_object(line)
        row = _row_of(fields) if self._options.inputs is None else self._rows.find(head)
        if row is None:
            key = (head.task_index, head.rollout_index)
            raise UsageError(f"{where}: {self._options.inputs} has no row of rollout {key}")
        return _Entry(line, head, agent, row, fields.get("response"))

    async def _renewed(self, entry: _Entry) -> tuple[bytes, bool]:
        """Return the new line of a rollout, and whether it is a result."""
        summary, before = self.summary, entry.head.reward
        summary.total += 1
        if self._options.failed_only and before is not None and before >= PASS_THRESHOLD:
            summary.kept += 1
            return entry.line, True
        response = _response_of(entry)
        if response is None:
            summary.without_response += 1
            return entry.line, False
        try:
            verified = await self._verify(entry, _whole(response))
            line = _result_line(entry, response, verified)
        except RolloutError as error:
            name = str(error.failure_class)
            summary.failures[name] = summary.failures.get(name, 0) + 1
            summary.messages.setdefault(name, error.message)
            return _failure_line(entry, response, error), False
        summary.verified += 1
        if before is None:
            summary.new += 1
        else:
            self._compare(before, verified.reward)
        return line, True

    def _compare(self, before: float, now: float) -> None:
        summary = self.summary
        summary.sum_before += before
        summary.sum_now += now
        if now != before:
            summary.raised += now > before
            summary.lowered += now < before
            summary.changes[before, now] = summary.changes.get((before, now), 0) + 1

    async def _verify(self, entry: _Entry, response: dict[str, Any]) -> Verified:
        worker = self._verifiers.worker_for(entry.agent)
        rollout = f"score/{entry.head.task_index}/{entry.head.rollout_index}"
        return await verify_again(worker, rollout, entry.row, response)


def _response_of(entry: _Entry) -> dict[str, Any] | None:
    """Return the response of a rollout; None if there is none that can be read."""
    try:
        response = None if entry.response is None else msgspec.json.decode(entry.response)
    except UNDECODABLE:
        return None
    return response if isinstance(response, dict) else None


def _read_inputs(rows: _Rows, source: LineSource) -> None:
    for _, where, line in numbered_lines(source):
        rows.add(decode_line(line, RowKey, where), _row_of(parse_object(line)))


def _row_of(fields: dict[str, msgspec.Raw]) -> bytes:
    """Return the row of a task, without what a result adds to it."""
    return msgspec.json.encode({name: value for name, value in fields.items() if name not in RESULT_FIELDS})


def _common(entry: _Entry, response: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": "score",
        "task_index": entry.head.task_index,
        "rollout_index": entry.head.rollout_index,
        "agent": entry.agent,
        "row": entry.row,
        "response": response,
    }


def _whole(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response of a file with whole prompts."""
    try:
        return token_forms.with_whole_prompts(response)
    except ValueError as error:
        raise InvalidTask(f"response.{error}") from None


def _result_line(entry: _Entry, response: dict[str, Any], verified: Verified) -> bytes:
    try:
        return output_row(VerifiedRollout(**_common(entry, response), reward=verified.reward, verdict=verified.verdict))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise RolloutError(FailureClass.NOT_STORABLE, f"the verdict has no JSON form: {error}") from None


def _failure_line(entry: _Entry, response: dict[str, Any], error: RolloutError) -> bytes:
    return failure_row(Unresolved(**_common(entry, response), **(error.as_fields() | {"stage": Stage.VERIFY})), 0)


def _is_refused_row(line: bytes) -> bool:
    """Return whether a line is the failure of an input row that cannot be used, which belongs to no rollout."""
    if FAILURE_CLASS.encode() not in line:
        return False
    try:
        fields = parse_object(line)
    except JsonlError:
        return False  # the reader of the line names its place
    return FAILURE_CLASS in fields and TASK_INDEX not in fields
