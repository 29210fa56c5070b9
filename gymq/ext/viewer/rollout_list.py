"""The rollouts of a run page by page, and searching them: by position in the stream, never all at once.

A position is the stream sequence of an outcome. A page forwards reads from a position on, a page backwards reads what
is before it. A search reads what follows a position until it has found enough or its time is over, and reports how far
it came, so that the client can resume it from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gymq import responses
from gymq.bus import Bus
from gymq.bus.jetstream import Code, JetStreamError
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.rows import attempt_index
from gymq.ext.rollout_files.shown import fields_beside_prompt, num_turns, output_tokens, question_of, row_of, value_text
from gymq.ext.viewer.columns import Detail, details_of
from gymq.protocol.messages import Failure, Outcome, Unresolved, VerifiedRollout
from gymq.responses.items import is_truncated
from gymq.runs.outcome_fields import expected_of, own_fields, params_of
from gymq.runs.stored_runs import Runs

PAGE = 50
SEARCH_S = 1.0  # of one request
YIELD_EVERY = 16  # outcomes; in between others get their turn
WORDS = 200  # characters of a text that are shown in a list


class RolloutRow(msgspec.Struct, frozen=True):
    """An outcome in a list."""

    position: int
    task_index: int
    rollout_index: int
    attempt: int
    agent: str
    reward: float | None
    failure_class: str | None
    duration_s: float
    started_at: float
    output_tokens: int | None
    turns: int  # items that the model wrote, but for reasoning
    worker: str
    policy_version: str  # that answered last; empty if the model has none
    is_truncated: bool  # whether the reply reached the limit of output tokens
    stage: str  # in which it failed; empty if it did not
    stages: dict[str, tuple[int, float]]  # calls and their seconds, by stage
    prompt: str
    expected: str
    words: str  # the reply's first words, or why there is no reward
    details: dict[str, Detail]  # fields of the verdict and of the row, which may be columns


class RolloutPage(msgspec.Struct, frozen=True):
    rows: list[RolloutRow]
    looked_at: int  # outcomes that were read for it
    position: int  # where the next page forwards begins: beyond this
    is_end: bool  # whether there is nothing beyond it (yet)


@dataclass(frozen=True)
class Wanted:
    """Conditions of a search for outcomes; each one that is set must hold."""

    agent: str | None = None
    task_index: int | None = None
    failed: bool | None = None  # True: only those without a reward; False: only those with one
    failure_class: str | None = None
    least_reward: float | None = None
    most_reward: float | None = None
    least_s: float | None = None
    text: str | None = None  # anywhere in the row, the output or the failure; capitals do not matter

    @property
    def is_anything(self) -> bool:
        return self == Wanted()

    def matches(self, outcome: Outcome, listed: RolloutRow) -> bool:
        """Return whether an outcome is wanted; `listed` is its row."""
        return self.fits(listed) and (
            self.text is None or any(self.text.lower() in part.lower() for part in _texts(outcome))
        )

    def fits(self, listed: RolloutRow) -> bool:
        """Return whether the row of an outcome fulfils all conditions but that on its text."""
        reward = listed.reward
        bounds = ((self.least_reward, 1), (self.most_reward, -1))
        return (
            self.agent in (None, listed.agent)
            and self.task_index in (None, listed.task_index)
            and self.failed in (None, reward is None)
            and self.failure_class in (None, listed.failure_class)
            and all(bound is None or (reward is not None and sign * (reward - bound) >= 0) for bound, sign in bounds)
            and (self.least_s is None or listed.duration_s >= self.least_s)
        )


class RolloutList:
    """Reads the outcomes of runs for lists."""

    def __init__(self, bus: Bus) -> None:
        self._store = OutcomeStore(bus)
        self._runs = Runs(bus)
        self._searching = asyncio.Semaphore(2)

    async def after(self, run: str, position: int, wanted: Wanted) -> RolloutPage:
        """Return a page of the rollouts after a position that match.

        Raises:
            BusError, BadToken
        """
        if wanted.is_anything:
            return await self._after(run, position, wanted, batch=PAGE + 1)
        async with self._searching:
            return await self._after(run, position, wanted, batch=128)

    async def _after(self, run: str, position: int, wanted: Wanted, batch: int) -> RolloutPage:
        if wanted.task_index is None:
            stored = self._store.read(run, after=position, batch=batch)
        else:
            stored = self._store.read(run, wanted.task_index)
        give_up = time.monotonic() + SEARCH_S
        rows: list[RolloutRow] = []
        looked_at = 0
        async for sequence, outcome in stored:
            if sequence <= position:
                continue
            if len(rows) == PAGE or (looked_at and time.monotonic() > give_up):
                return RolloutPage(rows, looked_at, position, is_end=False)
            looked_at += 1
            position = sequence
            listed = row(sequence, outcome)
            if wanted.matches(outcome, listed):
                rows.append(listed)
            if looked_at % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return RolloutPage(rows, looked_at, position, is_end=True)

    async def before(self, run: str, position: int) -> RolloutPage:
        """Return the page before a position; a position beyond the last rollout means the end.

        Raises:
            BusError, BadToken
        """
        try:
            position = min(position, await self._runs.last_sequence(run) + 1)
        except JetStreamError as error:
            if error.code != Code.MESSAGE_NOT_FOUND:
                raise
            return RolloutPage([], 0, 0, is_end=True)
        span, looked_at = 2 * PAGE, 0
        while True:
            found: list[RolloutRow] = []
            after = max(0, position - 1 - span)
            async for sequence, outcome in self._store.read(run, after=after, batch=span):
                if sequence >= position:
                    break
                looked_at += 1
                found.append(row(sequence, outcome))
            if len(found) >= PAGE or after == 0:
                rows = found[-PAGE:]
                return RolloutPage(rows, looked_at, position - 1, is_end=False)
            span *= 4  # outcomes of other runs are in between


def row(position: int, outcome: Outcome) -> RolloutRow:
    """Return an outcome as a row of a list."""
    if isinstance(outcome, VerifiedRollout):
        words, reward, failure = responses.last_assistant_text(outcome.response), outcome.reward, None
    else:
        words, reward, failure = outcome.message, None, str(outcome.failure_class)
    verdict = outcome.verdict if isinstance(outcome, VerifiedRollout) else {}
    fields = row_of(outcome)
    params = params_of(fields, verdict)
    # Where no field is named for what is expected, all that the row has beside its prompt.
    expected = [*expected_of(fields, verdict).values(), fields_beside_prompt(own_fields(fields), params)][0]
    return RolloutRow(
        position=position,
        task_index=outcome.task_index,
        rollout_index=outcome.rollout_index,
        attempt=attempt_index(outcome.row, outcome.attempt),
        agent=outcome.agent,
        reward=reward,
        failure_class=failure,
        duration_s=outcome.duration_s,
        started_at=outcome.started_at,
        output_tokens=output_tokens(outcome),
        turns=0 if isinstance(outcome, Failure) else num_turns(outcome.response),
        worker=outcome.worker,
        policy_version=outcome.policy_versions[-1] if outcome.policy_versions else "",
        is_truncated=not isinstance(outcome, Failure) and is_truncated(outcome.response),
        stage="" if isinstance(outcome, VerifiedRollout) else str(outcome.stage),
        stages=_stages(outcome),
        prompt=question_of(params)[:WORDS],
        expected=value_text(expected)[:WORDS] if expected else "",
        words=words[:WORDS],
        details=details_of(fields, verdict),
    )


def _stages(outcome: Outcome) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for timing in outcome.timings:
        calls, seconds = found.get(timing.stage, (0, 0.0))
        found[str(timing.stage)] = calls + 1, seconds + timing.duration_s
    return found


def _texts(outcome: Outcome) -> Iterator[str]:
    """Yield all texts of an outcome: the row, the output, the verdict and the message of a failure."""
    yield outcome.row.decode("utf-8", "replace")
    if b"\\" in outcome.row:
        yield from _strings(row_of(outcome))  # as they read, without escapes
    if isinstance(outcome, Failure | Unresolved):
        yield outcome.message
    if not isinstance(outcome, Failure):
        yield from _strings(outcome.response.get("output"))
    if isinstance(outcome, VerifiedRollout):
        yield from _strings(outcome.verdict)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
