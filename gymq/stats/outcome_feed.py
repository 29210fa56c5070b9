"""Adding stored outcomes to a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.protocol.messages import Outcome, VerifiedRollout
from gymq.stats.field_totals import numeric_fields
from gymq.stats.running import RunningProfile, Slow

ANSWER_FIELD = "extracted_answer"  # what majority@k counts


def add_outcome(profile: RunningProfile, sequence: int, outcome: Outcome) -> None:
    """Add a stored outcome; adding it again changes nothing."""
    where = (outcome.agent, outcome.task_index, outcome.rollout_index)
    reward = None
    if isinstance(outcome, VerifiedRollout):
        reward, answer = outcome.reward, outcome.verdict.get(ANSWER_FIELD)
        is_new = profile.add(
            *where,
            reward=reward,
            num_rollouts=outcome.num_rollouts,
            answer=None if answer is None else str(answer),
            numbers=numbers_of(outcome.verdict, outcome.response.get("usage")),
        )
    else:
        is_new = profile.add_failure(
            *where,
            failure_class=outcome.failure_class,
            final=not (outcome.retryable or outcome.curable),
            num_rollouts=outcome.num_rollouts,
            order=sequence,
        )
    if is_new and outcome.duration_s > 0:
        slow = Slow(outcome.duration_s, outcome.task_index, outcome.rollout_index, outcome.agent, reward)
        profile.note_duration(slow)


def numbers_of(fields: Mapping[str, Any], usage: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the numbers to profile."""
    return numeric_fields({**fields, **(usage or {})})
