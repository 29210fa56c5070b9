"""Groups of samples: what a trainer is given, and what is known of one that is not complete yet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import pydantic

from gymq.authoring import first_problem
from gymq.bridge.failures import BridgeError, of_outcome
from gymq.bridge.keys import digest_of
from gymq.bridge.records import Record
from gymq.bridge.result import answer
from gymq.jsonl import JsonlText, parse_object
from gymq.materialise import Materialisation, MaterialiseOptions
from gymq.messages import FailureClass, Outcome, Rollout
from gymq.rows import TASK_INDEX, MaterialisedRow, RowError

Row = dict[str, Any]
OnUntrainable = Literal["error", "allow"]


class TrainerError(Exception):
    """What a trainer asked for cannot be done; one sentence."""


@dataclass(frozen=True)
class Sample:
    """One rollout with its reward.

    Attributes:
        result: the row as it was sent, with `response`, `reward` and the verifier's members; what `/run` answers.
        policy_versions: that answered, the first one first; empty if the model has no versions.
    """

    rollout_index: int
    result: Row
    policy_versions: list[str]

    @property
    def reward(self) -> float:
        return float(self.result["reward"])

    def record(self) -> Record:
        """Its tokens as one sequence.

        Raises:
            NotTrainable: it has none.
        """
        return Record.of(self.result)


@dataclass(frozen=True)
class SampleFailed:
    """A rollout that has no reward.

    Attributes:
        status: of HTTP, as a bridge would give it: trainers try again from 500 on.
    """

    rollout_index: int
    failure_class: str
    message: str
    status: int


@dataclass(frozen=True)
class Group:
    """The samples of one task.

    Attributes:
        example: the caller's own object.
        samples: in the order in which they were stored: the first that were done.
        failures: those that ended without a reward, and those that became stale.
        num_samples: how many were asked for.
    """

    task_index: int
    example: Row
    samples: list[Sample]
    failures: list[SampleFailed]
    num_samples: int

    @property
    def is_complete(self) -> bool:
        return len(self.samples) == self.num_samples

    @property
    def rewards(self) -> list[float]:
        return [sample.reward for sample in self.samples]

    def fresh(self, behind: Callable[[str], int], max_staleness: int) -> Group:
        """This group with samples that began too long ago as failures.

        Args:
            behind: how many updates of the policy came after a version.
        """
        kept, failures = [], list(self.failures)
        for sample in self.samples:
            age = behind(sample.policy_versions[0]) if sample.policy_versions else max_staleness + 1
            if age <= max_staleness:
                kept.append(sample)
                continue
            begun = f"by the policy {sample.policy_versions[0]!r}" if sample.policy_versions else "without a version"
            text = f"begun {begun}; more than {max_staleness} updates came since"
            failures.append(SampleFailed(sample.rollout_index, str(FailureClass.STALE), text, 500))
        return replace(self, samples=kept, failures=failures)


@dataclass
class Pending:
    """A group that is waited for."""

    example: Row
    rows: list[MaterialisedRow]  # one for each rollout, the surplus included
    num_samples: int
    straggler_s: float | None
    on_untrainable: OnUntrainable
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    cut_at: float = math.inf  # on the event loop's clock
    _rung: set[int] = field(default_factory=set)  # since it was read last
    _replaces: dict[int, int | None] = field(default_factory=dict)  # of rollouts in the queue
    _retryable: dict[int, int] = field(default_factory=dict)  # stream sequences of failures
    _ends: dict[int, tuple[int, Sample | SampleFailed]] = field(default_factory=dict)  # by rollout, with the sequence

    @property
    def task_index(self) -> int:
        return self.rows[0].task_index

    def ring(self, rollout_index: int) -> None:
        """An outcome was stored."""
        self._rung.add(rollout_index)
        self._start_clock()
        self.bell.set()

    def ring_all(self) -> None:
        """Outcomes may have been stored."""
        self._rung.update(range(len(self.rows)))
        self.bell.set()

    def forget_bells(self) -> None:
        self._rung.clear()

    def cut(self) -> None:
        """Wait no longer."""
        self.cut_at = -math.inf
        self.bell.set()

    def expect(self, queued: dict[int, int | None]) -> None:
        """Rollouts that are in the queue already, with the failures that they replace."""
        self._replaces.update(queued)

    def learn(self, stored: Sequence[tuple[int, Outcome]]) -> None:
        """Take in all outcomes of the task, with their stream sequences, in this order.

        Raises:
            TrainerError: they are of another row.
        """
        known = dict(self._ends.values())
        self._ends, self._retryable = {}, {}
        for sequence, outcome in stored:
            index = outcome.rollout_index
            if index >= len(self.rows):
                continue  # a larger group was asked for at another time
            end = known.get(sequence) or self._end_of(outcome)
            self._ends[index] = (sequence, end)
            if not isinstance(outcome, Rollout) and outcome.retryable:
                self._retryable[index] = sequence
        if self._settled():
            self._start_clock()

    def to_submit(self) -> Iterator[tuple[MaterialisedRow, int | None]]:
        """Rows to put into the queue, with the failures to replace; they count as in the queue from then on."""
        if len(self._samples()) >= self.num_samples:
            return
        for row in self.rows:
            index = row.rollout_index
            if index in self._replaces or (index in self._ends and index not in self._retryable):
                continue
            self._replaces[index] = self._retryable.get(index)
            yield row, self._replaces[index]

    @property
    def may_be_complete(self) -> bool:
        """Whether it would be, if all whose bell was heard are samples."""
        heard = len(self._rung)
        return len(self._samples()) + heard >= self.num_samples or len(self._settled()) + heard >= len(self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether there are enough samples, or no rollout is left that could be one."""
        return len(self._samples()) >= self.num_samples or len(self._settled()) == len(self.rows)

    @property
    def is_queued(self) -> bool:
        """Whether a rollout of it is in the queue or in work."""
        return any(index in self._replaces and not self._is_settled(index) for index in range(len(self.rows)))

    def group(self) -> Group:
        """What there is: of samples that are too many, those that were stored first."""
        failures = [end for end in self._settled() if isinstance(end, SampleFailed)]
        return Group(self.task_index, self.example, self._samples()[: self.num_samples], failures, self.num_samples)

    def _samples(self) -> list[Sample]:
        return [end for end in self._settled() if isinstance(end, Sample)]

    def _settled(self) -> list[Sample | SampleFailed]:
        """How rollouts ended, in the order of the stream."""
        ends = [self._ends[index] for index in self._ends if self._is_settled(index)]
        return [end for _, end in sorted(ends, key=lambda one: one[0])]

    def _is_settled(self, index: int) -> bool:
        """Whether a rollout has ended, and not with a failure whose replacement has yet to come."""
        if index not in self._ends:
            return False
        return index not in self._replaces or self._replaces[index] != self._ends[index][0]

    def _start_clock(self) -> None:
        if self.straggler_s is not None and self.cut_at == math.inf:
            self.cut_at = asyncio.get_running_loop().time() + self.straggler_s

    def _end_of(self, outcome: Outcome) -> Sample | SampleFailed:
        index = outcome.rollout_index
        try:
            if not isinstance(outcome, Rollout):
                raise of_outcome(outcome)
            if digest_of(parse_object(outcome.row)) != digest_of(parse_object(self.rows[index].json)):
                raise TrainerError(
                    f"task {self.task_index} of run {outcome.run} is stored with another row: give a new row a new "
                    f"`{TASK_INDEX}`, or the run a new name"
                )
            result = msgspec.json.decode(answer(outcome, self.on_untrainable))
        except BridgeError as error:
            return SampleFailed(index, error.failure_class, error.message, error.status)
        return Sample(index, result, outcome.policy_versions)


def rows_of_groups(examples: Sequence[Row], size: int, agent: str | None) -> list[list[MaterialisedRow]]:
    """The rows of each example's rollouts.

    Raises:
        RowError: examples cannot be used; says which and why.
        TrainerError: the options do not fit.
    """
    for number, example in enumerate(examples, 1):
        if not isinstance(example, dict) or TASK_INDEX not in example:
            raise RowError(f"examples:{number}: no object with a `{TASK_INDEX}`, which says which group this is")
    try:
        options = MaterialiseOptions(agent_name=agent, num_repeats=size)
        text = b"\n".join(msgspec.json.encode(example) for example in examples)
    except pydantic.ValidationError as error:
        raise TrainerError(first_problem(error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"an example has no JSON form: {error}") from None
    groups: dict[int, list[MaterialisedRow]] = {}
    with Materialisation(options) as made:
        for row in made.rows(JsonlText("examples", text)):
            group = groups.setdefault(row.task_index, [])
            if group and group[0].line_number != row.line_number:
                raise RowError(f"examples:{row.line_number}: `{TASK_INDEX}` {row.task_index} is there twice")
            group.append(row)
    return list(groups.values())
