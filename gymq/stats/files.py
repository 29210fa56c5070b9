"""Statistics of a run from its files, and the files of its report."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gymq.data.disk_index import TaskCounts, TemporaryDatabase
from gymq.data.jsonl import JsonlError, JsonlFile, atomic_write, numbered_lines, parse_object
from gymq.data.rows import (
    FAILURE_CLASS,
    FAILURE_SEQUENCE,
    FAILURE_TERMINAL,
    ROLLOUT_INDEX,
    TASK_INDEX,
    AgentRef,
    Index,
    RowError,
    RowKey,
    read_rows,
)
from gymq.data.run_files import ReportFiles, RunFiles
from gymq.defaults import PASS_THRESHOLD
from gymq.errors import UsageError
from gymq.responses.items import is_truncated
from gymq.stats.outcome_feed import numbers_of
from gymq.stats.report import InputRow, Key, ReportStream, ResultRow, result_row
from gymq.stats.running import ProfileSnapshot, RunningProfile

_SCALAR_STARTS = b"-0123456789tfn"

_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class RunStatistics(NamedTuple):
    """Statistics of a run from its files."""

    profile: RunningProfile
    truncated: int  # replies that ended because they reached the limit of output tokens


class _Response(msgspec.Struct):
    usage: dict[str, Any] | None = None
    incomplete_details: Any = None


class _ResultRow(RowKey, frozen=True, gc=False):
    reward: float
    response: _Response
    agent_ref: AgentRef | None = None  # missing in results of NeMo Gym up to March 2026; their rows have it
    extracted_answer: Any = None


class _FailureRow(msgspec.Struct, frozen=True, gc=False):
    task_index: Index | None = msgspec.field(default=None, name=TASK_INDEX)
    rollout_index: Index | None = msgspec.field(default=None, name=ROLLOUT_INDEX)
    agent_ref: AgentRef | None = None
    failure_class: str = msgspec.field(default="", name=FAILURE_CLASS)
    terminal: bool = msgspec.field(default=False, name=FAILURE_TERMINAL)
    sequence: int = msgspec.field(default=0, name=FAILURE_SEQUENCE)


_decode_result = msgspec.json.Decoder(_ResultRow).decode
_decode_failure = msgspec.json.Decoder(_FailureRow).decode


def read_statistics(
    files: RunFiles,
    *,
    rows: Path | None = None,
    pass_threshold: float = PASS_THRESHOLD,
    pooled: str | None = None,
    report: ReportFiles | None = None,
    snapshot: ProfileSnapshot | None = None,
    allow_partial: bool = False,
) -> RunStatistics:
    """Return the statistics of a run from its files, each read once, and optionally write its report.

    Rows and results may be in any order; for the report they are sorted on disk, so a run of any length fits. Existing
    files of a report are replaced once everything is read and the new ones are complete.

    Args:
        files: of the run; its materialised rows and its failures may be missing.
        rows: the materialised rows, if they are in another file.
        pass_threshold: the smallest reward with which a rollout passes.
        pooled: a name for all agents together; None: separate statistics for each agent.
        report: the files to write.
        snapshot: the statistics for the report, where more is known than these files have; None: theirs.
        allow_partial: whether rows may lack a result in the report.

    Raises:
        RowError, JsonlError: a line cannot be read, a result has no agent, or rows and results do not belong together,
            see `gymq.stats.report.ReportStream.groups`.
        UsageError: the report cannot be written.
    """
    profile, truncated = RunningProfile(pass_threshold), 0
    with TaskCounts() as counts, _SortedLines() as inputs, _SortedLines() as results:
        if rows is not None or files.materialised.exists():
            _read_rows(rows or files.materialised, counts, inputs, with_text=report is not None)
        for _, where, line in numbered_lines(JsonlFile(files.output)):
            result, fields, entry = _read_result(where, line, for_report=report is not None)
            key = (result.task_index, result.rollout_index)
            if entry is not None and not results.add(key, "", _encode(entry)):
                raise RowError(f"{where}: there is more than one result of rollout {key}")
            truncated += is_truncated(msgspec.structs.asdict(result.response))
            profile.add(
                pooled or (result.agent_ref.name if result.agent_ref else _agent(inputs, key, where)),
                *key,
                reward=result.reward,
                num_rollouts=counts[result.task_index] or None,  # None: an output without its rows
                answer=None if result.extracted_answer is None else str(result.extracted_answer),
                numbers=numbers_of(fields, result.response.usage),
            )
        if files.failures.exists():
            _add_failures(profile, files.failures, counts, inputs, pooled)
        if report is not None:
            _write_report(report, inputs, results, snapshot or profile.snapshot(), allow_partial=allow_partial)
    return RunStatistics(profile, truncated)


def _add_failures(
    profile: RunningProfile, failures: Path, counts: TaskCounts, inputs: _SortedLines, pooled: str | None
) -> None:
    for _, where, line in numbered_lines(JsonlFile(failures)):
        failure = _decoded(_decode_failure, where, line)
        if failure.task_index is None or failure.rollout_index is None or failure.agent_ref is None:
            continue  # a refused row of the input, without a rollout
        # The failure of an unreadable outcome does not name a real agent.
        agent = pooled or inputs.agent((failure.task_index, failure.rollout_index)) or failure.agent_ref.name
        is_last = profile.add_failure(
            agent,
            failure.task_index,
            failure.rollout_index,
            failure_class=failure.failure_class,
            final=failure.terminal,
            num_rollouts=counts[failure.task_index] or None,
            order=failure.sequence,
        )
        if not is_last:
            profile.count_attempt(agent, failure.failure_class)


class _SortedLines(TemporaryDatabase):
    """Agents and texts by the key of their rollout, on disk."""

    def __init__(self) -> None:
        super().__init__("lines (task INTEGER, rollout INTEGER, agent TEXT, text BLOB, UNIQUE (task, rollout))")

    def add(self, key: Key, agent: str, text: bytes) -> bool:
        """Add a line; False if the key has one."""
        try:
            self._execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (*key, agent, text))
        except sqlite3.IntegrityError:
            return False
        return True

    def agent(self, key: Key) -> str | None:
        """Return the agent of a line, if there is one."""
        found: tuple[str] | None = self._row("SELECT agent FROM lines WHERE task = ? AND rollout = ?", *key)
        return None if found is None else found[0]

    def __iter__(self) -> Iterator[tuple[Key, str, bytes]]:
        """Yield key, agent and text, in the order of the keys."""
        for task, rollout, agent, text in self._database.execute("SELECT * FROM lines ORDER BY task, rollout"):
            yield (task, rollout), agent, text


def _agent(rows: _SortedLines, key: Key, where: str) -> str:
    """Return the agent of a result's row."""
    agent = rows.agent(key)
    if agent is None:
        raise RowError(f"{where}: rollout {key} has no `agent_ref`, nor has it a row with one")
    return agent


def _read_rows(path: Path, counts: TaskCounts, inputs: _SortedLines, *, with_text: bool) -> None:
    for row in read_rows(JsonlFile(path)):
        key = (row.task_index, row.rollout_index)
        if not inputs.add(key, row.agent, row.json if with_text else b""):
            raise RowError(f"{path}:{row.line_number}: there is more than one row of rollout {key}")
        counts.add(row.task_index)


def _read_result(where: str, line: bytes, *, for_report: bool) -> tuple[_ResultRow, dict[str, Any], ResultRow | None]:
    """Return a result, its numbers, booleans and nulls, and its entry in the report."""
    try:
        raw = parse_object(line)
        fields = {name: _scalar(value) for name, value in raw.items() if _is_scalar(value)}
        entry = result_row(fields | _response(raw)) if for_report else None
    except msgspec.ValidationError as error:
        raise RowError(f"{where}: a field cannot be read: {error}") from None
    except (JsonlError, RowError) as error:
        raise RowError(f"{where}: {error}") from None
    return _decoded(_decode_result, where, line), fields, entry


def _response(raw: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return the response of a result without anything but its token usage."""
    if "response" not in raw:
        return {}
    response = msgspec.json.decode(raw["response"], type=dict[str, msgspec.Raw] | None)
    return {"response": response and {"usage": msgspec.json.decode(response.get("usage", b"null"))}}


def _scalar(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        return float(bytes(raw))  # infinity, of a number out of range


def _is_scalar(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) in _SCALAR_STARTS


def _decoded(decode: Callable[[bytes], T], where: str, line: bytes) -> T:
    try:
        return decode(line)
    except msgspec.MsgspecError as error:
        raise RowError(f"{where}: {error}") from None


def _write_report(
    report: ReportFiles,
    inputs: _SortedLines,
    results: _SortedLines,
    snapshot: ProfileSnapshot,
    *,
    allow_partial: bool,
) -> None:
    stream = ReportStream(allow_partial=allow_partial)
    decode = msgspec.json.Decoder(ResultRow).decode
    rows = (InputRow(key, agent, parse_object(text)) for key, agent, text in inputs)
    entries = (decode(text) for _, _, text in results)
    try:
        with (
            atomic_write(report.statistics) as statistics_file,
            atomic_write(report.agent_metrics) as agents_file,
            atomic_write(report.reward_profiling) as groups_file,
        ):
            for group in stream.groups(rows, entries):
                groups_file.write(_encode(group) + b"\n")
            agents_file.write(_encode(stream.agents()) + b"\n")
            statistics_file.write(_encode(snapshot) + b"\n")
    except OSError as error:
        raise UsageError(f"{', '.join(map(str, report))} cannot be written: {error.strerror or error}") from None
