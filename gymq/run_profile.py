"""The profile of one run, fed with outcomes as they are stored or with the rows of its output file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.jsonl import JsonlFile
from gymq.ledger import TaskCounts
from gymq.messages import Outcome, Rollout
from gymq.profile import ProfileError, numeric_members
from gymq.profile_files import scalar_members
from gymq.rows import FAILURE_CLASS, FAILURE_TERMINAL, ROLLOUT_INDEX, TASK_INDEX, AgentRef, Index, RowKey, read_rows
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
    agent_ref: AgentRef
    reward: float
    response: _Response
    extracted_answer: Any = None


class _FailureRow(msgspec.Struct, frozen=True, gc=False):
    task_index: Index | None = msgspec.field(default=None, name=TASK_INDEX)
    rollout_index: Index | None = msgspec.field(default=None, name=ROLLOUT_INDEX)
    agent_ref: AgentRef | None = None
    failure_class: str = msgspec.field(default="", name=FAILURE_CLASS)
    terminal: bool = msgspec.field(default=False, name=FAILURE_TERMINAL)
    sequence: int = msgspec.field(default=0, name=FAILURE_SEQUENCE)


def profile_of_files(files: RunFiles, pass_threshold: float = PASS_THRESHOLD) -> RunningProfile:
    """Return the profile of a run from its materialised rows, output and failures.

    Args:
        pass_threshold: the smallest reward with which a rollout passes.
    """
    profile = RunningProfile(pass_threshold)
    decode_result = msgspec.json.Decoder(_ResultRow).decode
    decode_failure = msgspec.json.Decoder(_FailureRow).decode
    with TaskCounts() as counts:
        for row in read_rows(JsonlFile(files.materialised)):
            counts.add(row.task_index)
        for line in JsonlFile(files.output):
            result = decode_result(line)
            profile.add(
                result.agent_ref.name,
                result.task_index,
                result.rollout_index,
                reward=result.reward,
                num_rollouts=counts[result.task_index],
                answer=_text(result.extracted_answer),
                numbers=_numbers(scalar_members(line), result.response.usage),
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
