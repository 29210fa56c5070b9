"""The profile of one run, fed with outcomes as they are stored or with the rows of its output file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.jsonl import JsonlError, JsonlFile, LineSource
from gymq.ledger import TaskCounts, TemporaryDatabase
from gymq.messages import Outcome, Rollout
from gymq.profile import ProfileError, numeric_members
from gymq.profile_files import scalar_members
from gymq.rows import (
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    ROLLOUT_INDEX,
    TASK_INDEX,
    AgentRef,
    Index,
    MaterialisedRow,
    RowError,
    RowKey,
    read_rows,
)
from gymq.run_files import FAILURE_SEQUENCE, RunFiles
from gymq.running import PASS_THRESHOLD, RunningProfile, Slow

ANSWER_MEMBER = "extracted_answer"  # what majority@k counts


def add_outcome(profile: RunningProfile, sequence: int, outcome: Outcome) -> None:
    """Count one stored outcome; one that was counted before changes nothing."""
    where = (outcome.agent, outcome.task_index, outcome.rollout_index)
    reward = None
    if isinstance(outcome, Rollout):
        reward = outcome.reward
        is_new = profile.add(
            *where,
            reward=reward,
            num_rollouts=outcome.num_rollouts,
            answer=_text(outcome.verdict.get(ANSWER_MEMBER)),
            numbers=_numbers(outcome.verdict, outcome.response.get("usage")),
        )
    else:
        is_new = profile.add_failure(
            *where,
            failure_class=outcome.failure_class,
            final=not outcome.retryable,
            num_rollouts=outcome.num_rollouts,
            # An outcome that takes the place of a failure has a later sequence.
            attempt=sequence,
        )
    if is_new and outcome.duration_s > 0:
        slow = Slow(outcome.duration_s, outcome.task_index, outcome.rollout_index, outcome.agent, reward)
        profile.note_duration(slow)


class _Response(msgspec.Struct):
    usage: dict[str, Any] | None = None


class _ResultRow(RowKey, frozen=True, gc=False):
    reward: float
    response: _Response
    agent_ref: AgentRef | None = None  # those of NeMo Gym's releases up to March 2026 have none; their rows do
    extracted_answer: Any = None


class _FailureRow(msgspec.Struct, frozen=True, gc=False):
    task_index: Index | None = msgspec.field(default=None, name=TASK_INDEX)
    rollout_index: Index | None = msgspec.field(default=None, name=ROLLOUT_INDEX)
    agent_ref: AgentRef | None = None
    failure_class: str = msgspec.field(default="", name=FAILURE_CLASS)
    terminal: bool = msgspec.field(default=False, name=FAILURE_TERMINAL)
    sequence: int = msgspec.field(default=0, name=FAILURE_SEQUENCE)


class _AgentsOfRows(TemporaryDatabase):
    """The agents of rows, which are read when the first result is asked about."""

    def __init__(self, rows: LineSource) -> None:
        super().__init__(
            "agents (task INTEGER, rollout INTEGER, agent TEXT, PRIMARY KEY (task, rollout)) WITHOUT ROWID"
        )
        self._rows: LineSource | None = rows

    def of(self, result: RowKey, where: str) -> str:
        """The agent of a result's row.

        Raises:
            RowError: it has none.
        """
        if self._rows is not None:
            for row in read_rows(self._rows):
                self._execute("INSERT OR REPLACE INTO agents VALUES (?, ?, ?)", _columns(row))
            self._rows = None
        key = (result.task_index, result.rollout_index)
        found: tuple[str] | None = self._row("SELECT agent FROM agents WHERE task = ? AND rollout = ?", *key)
        if found is None:
            raise RowError(f"{where}: rollout {key} has no `agent_ref`, nor has it a row with one")
        return found[0]


def _columns(row: MaterialisedRow) -> tuple[int, int, str]:
    return row.task_index, row.rollout_index, row.agent


def profile_of_files(files: RunFiles, pass_threshold: float = PASS_THRESHOLD) -> RunningProfile:
    """Return the profile of a run from its materialised rows, output and failures.

    Args:
        pass_threshold: the smallest reward with which a rollout passes.

    Raises:
        RowError: a line cannot be read, or nothing says which agent a result is of.
    """
    profile = RunningProfile(pass_threshold)
    decode_result = msgspec.json.Decoder(_ResultRow).decode
    decode_failure = msgspec.json.Decoder(_FailureRow).decode
    rows = JsonlFile(files.materialised)
    with TaskCounts() as counts, _AgentsOfRows(rows) as agents:
        for row in read_rows(rows):
            counts.add(row.task_index)
        for number, line in enumerate(JsonlFile(files.output), 1):
            if line.isspace():
                continue
            where = f"{files.output}:{number}"
            try:
                result = decode_result(line)
                numbers = scalar_members(line)
            except (msgspec.MsgspecError, JsonlError) as error:
                raise RowError(f"{where}: {error}") from None
            profile.add(
                result.agent_ref.name if result.agent_ref else agents.of(result, where),
                result.task_index,
                result.rollout_index,
                reward=result.reward,
                num_rollouts=counts[result.task_index],
                answer=_text(result.extracted_answer),
                numbers=_numbers(numbers, result.response.usage),
            )
        for line in JsonlFile(files.failures):
            failure = decode_failure(line)
            if failure.task_index is None or failure.rollout_index is None or failure.agent_ref is None:
                continue  # a row of the input that was refused: of no rollout
            profile.add_failure(
                failure.agent_ref.name,
                failure.task_index,
                failure.rollout_index,
                failure_class=failure.failure_class,
                final=failure.terminal,
                num_rollouts=counts[failure.task_index],
                attempt=failure.sequence,
            )
    return profile


def _numbers(members: Mapping[str, Any], usage: Mapping[str, Any] | None) -> dict[str, float]:
    try:
        return numeric_members({**members, **(usage or {})})
    except ProfileError:
        return {}  # a number too large for statistics; the rollout itself counts


def _text(answer: Any) -> str | None:
    return None if answer is None else str(answer)
